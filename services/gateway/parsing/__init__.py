"""What models write, taken apart: thoughts, and calls of tools in the forms that chat templates describe."""
