#!/usr/bin/env python3
"""A conversation at a real terminal (tmux): editing, history, saving, a terminal that is closed, resuming.

    conversation_test.py PROGRAM [--model NAME|FILE] [--transcript FILE]

Without --model the embedded model talks, in the format chatml. Needs tmux; skips (exit status 77) where it is missing,
or pseudo-terminals are, or the model is. --transcript writes what the terminal showed, as text.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
TIMEOUT_S = 180


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, folder, command, environment):
        self._socket = os.path.join(folder, "tmux")
        self._run("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", "-s", "talk", *environment, command)

    def _run(self, *arguments, check=True):
        done = subprocess.run(["tmux", "-S", self._socket, *arguments], check=check, capture_output=True, text=True, timeout=30)
        return done.stdout

    def screen(self):
        lines = self._run("capture-pane", "-p", "-S", "-200", "-t", "talk").rstrip("\n").split("\n")
        return "\n".join(line.rstrip() for line in lines).rstrip()

    def type(self, text):
        self._run("send-keys", "-t", "talk", "-l", text)

    def press(self, *keys):
        self._run("send-keys", "-t", "talk", *keys)

    def wait(self, what, happened):
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            if happened(self.screen()):
                return
            time.sleep(0.1)
        raise AssertionError(f"waited {TIMEOUT_S} s for {what}; the terminal shows\n{self.screen()}")

    def close_window(self):
        """As when somebody closes it: the program gets SIGHUP."""
        self._run("kill-session", "-t", "talk")

    def end(self):
        self._run("kill-server", check=False)


def prompts(screen):
    return sum(line.startswith(">") for line in screen.split("\n"))


def at_prompt(count):
    """The answer is there, and the next line is waited for."""
    return lambda screen: prompts(screen) >= count and screen.split("\n")[-1].strip() == ">"


def gone(path, before):
    return os.path.exists(path) and os.path.getmtime(path) > before


def first_talk(terminal, saved):
    terminal.wait("the first prompt", at_prompt(1))
    # Three repairs: inside a word, at the front of the line, at its end.
    terminal.type("is the capital of Frace?")
    terminal.press("Left", "Left", "Left")
    terminal.type("n")
    terminal.press("C-a")
    terminal.type("What ")
    terminal.press("C-e")
    terminal.type(" One word.")
    terminal.wait("the edited line", lambda screen: screen.endswith("> What is the capital of France? One word."))
    terminal.press("Enter")
    terminal.wait("the first answer", at_prompt(2))
    terminal.type("/sav")
    terminal.press("Enter")
    terminal.wait("what was meant", lambda screen: 'did you mean "/save"?' in screen)
    # The line before the last comes back, and is changed at its end.
    terminal.press("Up", "Up")
    terminal.wait("the earlier line", lambda screen: screen.split("\n")[-1].startswith("> What is the capital of France"))
    terminal.press("C-u")
    terminal.type("And of \\")
    terminal.press("Enter")
    terminal.type("Italy?")
    terminal.press("Enter")
    terminal.wait("the second answer", at_prompt(4))
    terminal.type("/stats")
    terminal.press("Enter")
    terminal.wait("figures", lambda screen: " tokens | cache " in screen)
    screen = terminal.screen()
    terminal.close_window()
    end = time.monotonic() + TIMEOUT_S
    while not os.path.exists(saved) and time.monotonic() < end:
        time.sleep(0.1)
    assert os.path.exists(saved), f"closing the terminal saved nothing: {saved}"
    return screen


def second_talk(terminal, saved):
    terminal.wait("the prompt", at_prompt(1))
    assert "tokens of it are loaded" in terminal.screen(), terminal.screen()
    # History is there from the other terminal: /stats, then the line before it.
    terminal.press("Up")
    terminal.wait("history", lambda screen: screen.split("\n")[-1] == "> /stats")
    terminal.press("C-u")
    terminal.type("Which two cities did we talk about?")
    terminal.press("Enter")
    terminal.wait("an answer", at_prompt(2))
    before = os.path.getmtime(saved)
    time.sleep(1.1)
    terminal.type("/save")
    terminal.press("Enter")
    terminal.wait("a saved file", lambda screen: "saved " in screen and gone(saved, before))
    screen = terminal.screen()
    terminal.press("C-d")
    return screen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--model")
    parser.add_argument("--transcript")
    options = parser.parse_args()
    if shutil.which("tmux") is None:
        print("skipped: tmux is missing")
        return SKIPPED
    try:
        for end in os.openpty():
            os.close(end)
    except OSError as error:
        print(f"skipped: this machine has no pseudo-terminals: {error}")
        return SKIPPED
    program = os.path.abspath(options.program)
    base = f"{program} run --threads 2 --no-probe --temp 0 --kv q8_0 " + (f"-m {options.model} --chat" if options.model else "--chat chatml --tokens 24")
    if options.model:
        found = subprocess.run([program, "run", "-m", options.model, "-p", "Hi", "-n", "1"], capture_output=True, text=True, check=False)
        if found.returncode != 0:
            print(f"skipped: {found.stderr.strip()}")
            return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        saved = os.path.join(folder, "talk.varve")
        models = os.environ.get("VARVE_MODELS")
        environment = ["-e", f"VARVE_HISTORY={os.path.join(folder, 'history')}", "-e", "LC_ALL=C.UTF-8"]
        environment += ["-e", f"VARVE_MODELS={models}"] if models else []
        shown = []
        for talk, arguments in ((first_talk, f"--save {saved}"), (second_talk, f"--load {saved} --save {saved}")):
            terminal = Terminal(folder, f"{base} {arguments}", environment)
            try:
                shown.append((arguments, talk(terminal, saved)))
            finally:
                terminal.end()
        tokens = subprocess.run([program, "inspect", saved], check=True, capture_output=True, text=True).stdout
        assert "varve" in tokens
        if options.transcript:
            with open(options.transcript, "w", encoding="utf-8") as file:
                for arguments, screen in shown:
                    line = f"$ varve{base.removeprefix(program)} {arguments}".replace(folder + "/", "")
                    file.write(f"{line}\n{screen.replace(folder + '/', '')}\n\n")
    print("edited, saved by closing the terminal, resumed with history")
    return 0


if __name__ == "__main__":
    sys.exit(main())
