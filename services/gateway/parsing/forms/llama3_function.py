"""Llama 3.x by a prompt of its own: <function=name>{"key": value}</function>."""

from services.gateway.parsing.form import Form
from services.gateway.parsing.forms.llama3_json import shown
from services.gateway.parsing.xml_call import XmlCall

FORM = Form("llama3_function", "", "", (("<function", XmlCall),), True, shown)
