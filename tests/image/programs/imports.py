"""imports.py MODULE...: prints what each module that does not import raises, as JSON."""

import importlib
import json
import sys

sys.path.insert(0, "")
failed = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed[name] = repr(error)
sys.stdout.write(json.dumps(failed))
