# Splits a lock into one file for each layer of wheels: cuda.txt, torch.txt, services.txt.
/^[a-z]/ { layer = /^(nvidia|cuda)-/ ? "cuda" : /^(torch|triton|cupy)/ ? "torch" : "services" }
layer { print > layer ".txt" }
