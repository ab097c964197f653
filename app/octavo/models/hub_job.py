"""The child that downloads from the Hub: `python -m octavo.models.hub_job REPO WORK TARGET`."""

import sys
from pathlib import Path

from huggingface_hub import errors, snapshot_download

from octavo.errors import PullError
from octavo.models.hub import REVISION_FILE, TOTAL_FILE
from octavo.models.work import complain, first_line

# no pickles and no code; consolidated.* are the same weights once more
WANTED = ["*.safetensors", "*.json", "*.model", "*.jinja", "*.txt", "*.tiktoken"]
UNWANTED = ["*/*", "consolidated*"]


def main(repo: str, work: Path, target: Path) -> None:
    """Download; raises PullError with the reason in one line."""
    try:
        _download(repo, work, target)
    except PullError:
        raise
    except Exception as error:  # the border of this process: http, ssl, proxy and disk errors of several libraries
        is_wrapped = isinstance(error, errors.DryRunError) and error.__cause__ is not None
        raise _explain(repo, error.__cause__ if is_wrapped else error) from error


def _explain(repo: str, error: BaseException | None) -> PullError:
    match error:
        case errors.GatedRepoError():
            return PullError(
                f"hf:{repo} asks you to accept its terms first",
                f"Do so at https://huggingface.co/{repo}, log in with `hf auth login`, and pull again.",
            )
        case errors.RepositoryNotFoundError():
            message = f"The Hub has no repository {repo}, or it is private"
            return PullError(message, "Check the name, or log in with `hf auth login`.")
        case _:
            message = f"hf:{repo} could not be downloaded: {first_line(error)}"
            return PullError(message, "Check the network and the proxy, and pull again.")


def _download(repo: str, work: Path, target: Path) -> None:
    plan = snapshot_download(repo, allow_patterns=WANTED, ignore_patterns=UNWANTED, local_dir=target, dry_run=True)
    if not any(file.filename.endswith(".safetensors") for file in plan):
        raise PullError(
            f"hf:{repo} has no weights as safetensors, and others are not read",
            "Take another repository, or download a .gguf file and pull that path.",
        )
    revision = plan[0].commit_hash
    (work / REVISION_FILE).write_text(revision)
    (work / TOTAL_FILE).write_text(str(sum(file.file_size or 0 for file in plan)))
    snapshot_download(repo, revision=revision, allow_patterns=WANTED, ignore_patterns=UNWANTED, local_dir=target)


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    except PullError as error:
        complain(error)
        sys.exit(1)
