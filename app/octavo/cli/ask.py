"""`octavo ask`, which is also `octavo "question"`: one turn, its answer on stdout and nothing else there."""

import sys

import click


@click.command()
@click.argument("prompt", nargs=-1)
@click.option("-m", "--model", metavar="NAME", help="A known model, hf:ORG/REPO, a folder or a .gguf file.")
@click.option("-s", "--system", metavar="TEXT", help="The system prompt of the new chat.")
@click.option("-c", "--continue", "is_next", is_flag=True, help="Go on with the last chat.")
@click.option("--chat", "chat_id", metavar="ID", help="Go on with this chat; the beginning of its id is enough.")
@click.option("-o", "--option", "options", type=(str, str), multiple=True, metavar="NAME VALUE", help="temperature, …")
@click.option("-n", "--no-store", is_flag=True, help="Leave no trace in the store.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object with the answer and its measurements.")
@click.option("--usage", "is_usage", is_flag=True, help="Print tokens and times on stderr.")
@click.pass_context
def command(
    ctx: click.Context,
    prompt: tuple[str, ...],
    model: str | None,
    system: str | None,
    is_next: bool,
    chat_id: str | None,
    options: tuple[tuple[str, str], ...],
    no_store: bool,
    is_json: bool,
    is_usage: bool,
) -> None:
    """Ask once. What is piped in is put before the question; ctrl+c stops the reply and keeps what was said."""
    _refuse_conflicts(is_next, chat_id, system, no_store)
    from octavo.cli.sampling import parse_options

    params = parse_options(options)
    text = _whole_prompt(" ".join(prompt))

    from octavo.cli.asking import Question, answer

    question = Question(
        prompt=text, model=model, system=system, is_next=is_next, chat_id=chat_id, store=not no_store, params=params
    )
    ctx.exit(answer(question, is_json=is_json, is_usage=is_usage))


def _refuse_conflicts(is_next: bool, chat_id: str | None, system: str | None, no_store: bool) -> None:
    if is_next and chat_id:
        raise click.UsageError("-c and --chat name two chats; give one of them.")
    goes_on = is_next or chat_id
    if goes_on and system is not None:
        raise click.UsageError("-s is for a new chat; the one you go on with has its system prompt already.")
    if goes_on and no_store:
        raise click.UsageError("-n leaves no trace, so it cannot go on with a stored chat.")


def _whole_prompt(question: str) -> str:
    """What was piped in, then the question; raises UsageError when there is neither."""
    piped = _piped().rstrip("\n")
    parts = [part for part in (piped, question) if part.strip()]
    if not parts:
        raise click.UsageError('Nothing to ask. Write octavo "your question", or pipe a text into it.')
    return "\n\n".join(parts)


def _piped() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    return sys.stdin.buffer.read().decode("utf-8", errors="replace").replace("\r\n", "\n")
