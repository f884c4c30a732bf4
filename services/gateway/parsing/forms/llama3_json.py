"""Llama 3.x: JSON that stands alone."""

from services.gateway.parsing.form import Form, Written
from services.gateway.parsing.json_call import JsonCall


def shown(template: str) -> bool:
    """Whether a template is one of Llama 3's."""
    return "<|python_tag|>" in template or ("<|start_header_id|>" in template and '"parameters"' in template)


WRITTEN = Written('{"name": ', ', "parameters": ', "}")
FORM = Form("llama3_json", "", "", (("{", JsonCall),), True, shown, WRITTEN)
