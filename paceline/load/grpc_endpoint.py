"""A gateway of paceline over gRPC."""

from paceline.client import Client
from paceline.errors import PacelineError
from paceline.load.sample import FailedError, Job, Sample
from paceline.options import Message, Options, Prompt


class GrpcEndpoint:
    """Asks through a client."""

    def __init__(self, client: Client, model: str = "") -> None:
        """`model` empty takes the one that is served."""
        self._client = client
        self._model = model

    def ask(self, job: Job) -> Sample:
        """Greedy, as of Endpoint."""
        prompt: Prompt = [Message("user", job.prompt)] if job.chat else job.prompt
        options = Options(
            model=self._model, max_tokens=job.max_tokens, temperature=0.0, ignore_eos=job.ignore_eos or None
        )
        try:
            answer = self._client.generate(prompt, options)
        except PacelineError as error:
            raise FailedError(str(error)) from None
        if not answer.tokens:
            raise FailedError("no token came")
        return Sample(answer.first_s, answer.first_s + answer.decode_s, len(answer.tokens))
