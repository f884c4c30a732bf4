"""paceline completion: prints a script by which a shell completes the commands and their flags."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from paceline.commands import COMMANDS
from paceline.commands.parsing import Parser

BASH = """\
# Completes paceline in bash: paceline completion bash > ~/.local/share/bash-completion/completions/paceline
_paceline() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} found=
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    found='{names}'
  else
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    case $word in -*) ;; *) found= ;; esac
  fi
  COMPREPLY=($(compgen -W "$found" -- "$word"))
}}
complete -o default -F _paceline paceline
"""
ZSH = """\
#compdef paceline
# Completes paceline in zsh: paceline completion zsh > a folder of $fpath, as _paceline
_paceline() {{
  if (( CURRENT == 2 )); then
    local -a commands=(
{names}
    )
    _describe command commands
    return
  fi
  case $words[CURRENT] in -*) ;; *) _files; return ;; esac
  case $words[2] in
{cases}
  esac
}}
if [ "$funcstack[1]" = _paceline ]; then _paceline "$@"; else compdef _paceline paceline; fi
"""
FISH = """\
# Completes paceline in fish: paceline completion fish > ~/.config/fish/completions/paceline.fish
{names}
{cases}
"""
SHELLS = ("bash", "zsh", "fish")


def run(argv: Sequence[str]) -> int:
    """Prints the script of a shell."""
    parser = Parser(prog="paceline completion", description=__doc__)
    parser.add_argument("shell", choices=SHELLS, help="the shell; the first line of its script says where to put it")
    chosen = parser.only(argv)
    print(script(chosen.shell, flags()), end="")
    return 0


def flags() -> dict[str, list[str]]:
    """The flags that each command's help tells; none of one that is not installed."""
    asked = {
        name: subprocess.Popen(
            [sys.executable, "-m", "paceline", name, "--help"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for name in COMMANDS
        if name != "completion"
    }
    told = {name: process.communicate()[0].decode() for name, process in asked.items()}
    return {name: sorted(set(re.findall(r"(?<![\w-])--[a-z][\w.-]*\b", text))) for name, text in told.items()}


def script(shell: str, known: Mapping[str, Sequence[str]]) -> str:
    """The script of a shell for the flags of each command."""
    quoted = {name: about.replace("'", "") for name, about in COMMANDS.items()}
    if shell == "bash":
        cases = [f"      {name}) found='{' '.join(words)}' ;;" for name, words in known.items()]
        cases.append(f"      completion) COMPREPLY=($(compgen -W '{' '.join(SHELLS)}' -- \"$word\")); return ;;")
        return BASH.format(names=" ".join(COMMANDS), cases="\n".join(cases))
    if shell == "zsh":
        cases = [f"    {name}) compadd -- {' '.join(words)} ;;" for name, words in known.items()]
        names = [f"      '{name}:{about}'" for name, about in quoted.items()]
        return ZSH.format(names="\n".join(names), cases="\n".join(cases))
    first = "complete -c paceline -n __fish_use_subcommand -f -a"
    names = [f"{first} {name} -d '{about}'" for name, about in quoted.items()]
    within = "complete -c paceline -n '__fish_seen_subcommand_from {}' -l {}"
    cases = [within.format(name, word.removeprefix("--")) for name, words in known.items() for word in words]
    return FISH.format(names="\n".join(names), cases="\n".join(cases))
