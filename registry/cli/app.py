"""What every command shares: one result on standard output, one line for what went wrong."""

import errno
import functools
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

import hetfeat
from hetfeat.errors import HetfeatError, RequestError, WorkFailed
from registry.cli import help, logs, output, signals
from registry.cli.options import click_parameters, read_options
from registry.cli.params import Command

PROGRAM = "hetfeat"
INTERRUPTED = 130
HELP = {"help_option_names": ["-h", "--help"]}
"""Settings of click for each command: it keeps the names that it was first asked by."""
_OWN = ("hetfeat", "registry", "mlproject")
_OF_THE_MACHINE = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
}
"""Error numbers that a path or a disk may be guilty of; any other error of the system is a
defect."""

Value = Mapping[str, Any]
Render = Callable[[Value], str]


@dataclass(frozen=True)
class Result:
    """What a command returns when the exit code says more than "done".

    Attributes:
        value: The answer, printed as from any other command.
        exit_code: Exit code, default 0; 1 for what was found and not repaired, 3 for a gate that
            refused, 130 for what was cut short.
    """

    value: Value
    exit_code: int = 0


def command(
    name: str,
    options: type[Any] | None = None,
    *,
    render: Render = output.as_text,
    example: str = "",
    interrupted: str = "",
    **settings: Any,
) -> Callable[[Callable[..., Value | Result | None]], click.Command]:
    """Makes a function the command of its file: adds `--json`, prints what it returns, once.

    While the function runs, everything printed to standard output goes to standard error.

    Args:
        name: The command's name, as in the table of commands.
        options: Dataclass of the command's options; one of them is what the function is given.
            Default None.
        render: Callable that gives the result as text for people, default `output.as_text`; control
            characters in it are escaped before.
        example: A command line that does something useful, shown at the end of the help; default
            empty.
        interrupted: Text that says what is left when a signal ends the work, and how to go on;
            default empty.
        **settings: Settings of `click.Command`, passed to `click.command`.

    Returns:
        A decorator of a function that is given the options, if there are any.
    """

    def decorate(function: Callable[..., Value | Result | None]) -> click.Command:
        @functools.wraps(function)
        def run_and_print(as_json: bool, **given: Any) -> None:
            try:
                with output.stdout_kept_for_the_result():
                    returned = function(read_options(options, given)) if options else function()
            except KeyboardInterrupt as error:
                raise KeyboardInterrupt(interrupted) from error
            result = returned if isinstance(returned, Result) else Result(returned or {})
            if result.value:
                text = output.as_json if as_json else output.rendered_by(render)
                click.echo(text(result.value))
            click.get_current_context().exit(result.exit_code)

        parameters = [*(click_parameters(options) if options else []), _json_option()]
        parameters += logs.log_options()
        epilog = f"\b\nExample:\n  {example}" if example else None
        settings_of_all = {"cls": Command, "epilog": epilog, "context_settings": HELP}
        decorator = click.command(name, params=parameters, **settings_of_all | settings)
        made: click.Command = decorator(run_and_print)
        return made

    return decorate


def _json_option() -> click.Option:
    help_text = "Print one JSON object and nothing else on standard output."
    return click.Option(["--json", "as_json"], is_flag=True, help=help_text)


def _version_option() -> click.Option:
    def tell(context: click.Context, parameter: click.Parameter, given: bool) -> None:
        if given:
            click.echo(f"{PROGRAM} {hetfeat.__version__}")
            context.exit()

    help_text = "Print the version."
    return click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=tell,
        help=help_text,
    )


class Group(click.Group):
    """A group of commands that names the nearest ones when there is none of the name given."""

    context_class = help.Context

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command that the arguments ask for."""
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names:
            raise _unknown_command(args[0], names, ctx.command_path)
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group that imports a command when it runs, never to list it.

    Args:
        sections: Heading in the help -> name of a command -> its import string `module:attribute`,
            its line in the help.
        **settings: Settings of `click.Group`.
    """

    def __init__(
        self, sections: Mapping[str, Mapping[str, tuple[str, str]]], **settings: Any
    ) -> None:
        parameters = [_version_option(), *logs.log_options()]
        super().__init__(context_settings=HELP, params=parameters, **settings)
        self.sections = sections
        self.table = {name: line for table in sections.values() for name, line in table.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, in the table's order."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command of a name."""
        return self.load(cmd_name) if cmd_name in self.table else None

    def load(self, name: str) -> click.Command:
        """Imports the command of a name in the table."""
        found = pkgutil.resolve_name(self.table[name][0])
        if not isinstance(found, click.Command):
            raise TypeError(f"{self.table[name][0]} is not a click command")
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What may follow; from the table alone, so that the Tab key is quick."""
        names = [
            CompletionItem(name, help=line)
            for name, (_, line) in self.table.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands from the table alone."""
        for heading, table in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, line) for name, (_, line) in table.items()])


def run(group: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Runs a command line.

    An exception that no exit code stands for is a defect and passes through.

    Args:
        group: Group of the commands.
        arguments: Words after the program's name; default None for this process's own.

    Returns:
        The exit code: 0 done, 1 the work failed, 2 the request was wrong, 3 a gate refused, 130,
        129 or 143 interrupted by Ctrl-C, SIGHUP or SIGTERM.
    """
    output.open_closed_streams()
    logs.log_to_stderr()
    with signals.stopped_as_by_ctrl_c() as stop:
        code = _run(group, arguments)
    return stop.exit_code if code == INTERRUPTED else code


def _run(group: click.Command, arguments: Sequence[str] | None) -> int:
    try:
        code = group.main(arguments, prog_name=PROGRAM, standalone_mode=False)
    except HetfeatError as error:
        return fail(error)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message())
        return 0
    except click.ClickException as error:
        return _fail(_usage_line(error), RequestError.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _OWN:
            raise
        from registry.tracking.packages import missing

        return fail(missing(error))
    except OSError as error:
        if error.errno not in _OF_THE_MACHINE:
            raise
        return _fail(str(_unusable(error)), WorkFailed.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:  # click turns the one into the other
        left = str(error.__cause__ or "" if isinstance(error, click.Abort) else error)
        return _fail("; ".join(filter(None, ["interrupted", left])), INTERRUPTED)
    return code if isinstance(code, int) else 0


def _unknown_command(given: str, names: Sequence[str], path: str) -> RequestError:
    import difflib  # only here: the door stays quick

    near = difflib.get_close_matches(given, names) or names
    return RequestError(f"command '{given}'", " or ".join(near), f"`{path} --help` lists them all")


def _unusable(error: OSError) -> WorkFailed:
    return WorkFailed(
        f"'{error.filename}' ({error.strerror})" if error.filename else str(error.strerror),
        "a place that can be written, with room left",
        "choose another, or ask who owns it",
    )


def _usage_line(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    message = message.replace("a valid integer range", "a whole number")
    message = message.replace("a valid float range", "a number").replace(
        "a valid float", "a number"
    )
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message}; see `{context.command_path if context else PROGRAM} --help`"


def fail(error: HetfeatError) -> int:
    """Tells of an error in one line on standard error; its exit code."""
    return _fail(str(error), error.exit_code)


def _fail(message: str, exit_code: int) -> int:
    one_line = output.escaped(" ".join(message.split()))
    head = f"{PROGRAM}:"
    if output.is_coloured(sys.stderr):
        head = click.style(head, fg="red", bold=True)
    click.echo(f"{head} {one_line}", err=True)
    return exit_code
