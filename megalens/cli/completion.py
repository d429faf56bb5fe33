"""``megalens completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

import argparse
import json
import shlex

_BASH = """_megalens() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words
  if [ "$COMP_CWORD" -eq 1 ]; then words={commands}; else
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _megalens megalens"""
_SHELLS = ("bash", "zsh", "fish")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    words = "print what a shell needs to complete commands and options"
    parser = commands.add_parser(
        "completion",
        help=words,
        description=f"{words[0].upper()}{words[1:]}.",
        epilog='bash and zsh: eval "$(megalens completion bash)" in the start file; fish: '
        "megalens completion fish > ~/.config/fish/completions/megalens.fish.",
    )
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help=f"one of {', '.join(_SHELLS)}")
    parser.add_argument("--json", action="store_true", help="print JSON: the words of each command")
    parser.set_defaults(run=lambda arguments: _print(commands, arguments.shell, arguments.json))


def _print(commands: argparse._SubParsersAction[argparse.ArgumentParser], shell: str, as_json: bool) -> int:
    helps = {each.dest: each.help or "" for each in commands._get_subactions()}
    words = {name: _words(parser) for name, parser in commands.choices.items()}
    if as_json:
        print(json.dumps(words))
        return 0
    if shell == "fish":
        print("complete -c megalens -n __fish_use_subcommand -f")
        for name, each in words.items():
            about = shlex.quote(helps.get(name, ""))
            print(f"complete -c megalens -n __fish_use_subcommand -a {name} -d {about}")
            for word in each:
                kind = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
                print(f"complete -c megalens -n '__fish_seen_subcommand_from {name}' {kind}")
        return 0
    if shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    cases = [f"      {name}) words={shlex.quote(' '.join(each))} ;;" for name, each in words.items()]
    print(_BASH.format(commands=shlex.quote(" ".join(words)), cases="\n".join(cases)))
    return 0


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """Return the long options of a command, and the words that it knows in their place."""
    found = []
    for action in parser._actions:
        found += [option for option in action.option_strings if option.startswith("--")]
        if not action.option_strings and action.choices is not None:
            found += map(str, action.choices)
    return found
