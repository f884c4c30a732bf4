"""Qwen3-Coder and Qwen3.5: functions and parameters as tags."""

from services.gateway.parsing.form import Form
from services.gateway.parsing.xml_call import XmlCall

FORM = Form(
    "qwen_xml",
    "<tool_call>",
    "</tool_call>",
    (("<function", XmlCall),),
    True,
    lambda template: "<tool_call>" in template or "<function=" in template,
)
