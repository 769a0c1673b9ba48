"""How fast: ResNet-50 by precision and batch, the cost of the instrument, a sweep."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from loaderprobe.render.figures import reason_words
from loaderprobe.render.remarks import remark_words

CEILINGS: tuple[tuple[int, dict[str, Any]], ...] = (
    (256, {}), (256, {"precision": "fp16"}), (256, {"precision": "tf32"}), (256, {"precision": "fp32"}),
    (256, {"memory_format": "contiguous"}), (32, {}), (64, {}), (128, {}), (512, {}), (128, {"precision": "tf32"}),
    (1024, {}),
)  # fmt: skip
CEILING_STEPS = 40
ROUNDS, ROUND_BATCHES = 6, 60
# The instrument may cost 1 % of images/s.
LEAST_RATIO = 0.99
RESOLUTIONS = ((256, 256), (500, 375), (1024, 768))
WORKERS = (0, 1, 2, 4, 8, 16)
SWEEP_BATCH = 128
COMPUTE = "cuda"
# What a sweep takes for its data and its summary, beside what is measured.
SWEEP_REST_S = 15.0


def ceilings(out: Path, seconds: float) -> dict[str, Any]:
    """Images/s of a batch that stays on the GPU, by its events; as many of the list as time allows."""
    from gpu_check_facts import gpu, told

    end = time.monotonic() + seconds - 15
    found: list[dict[str, Any]] = []
    for size, options in CEILINGS:
        if time.monotonic() > end:
            break

        def rate(size: int = size, options: dict[str, Any] = options) -> float:
            compute, batch = gpu(size, **options)
            for _ in range(CEILING_STEPS):
                compute.step(batch)
            ended = compute.finish()
            return float(size * (len(ended) - 1) * 1e9 / (ended[-1] - ended[0]))

        found.append({"batch": size, **options, "images_per_s": told(rate)})
    return {"ceilings": found, "of": len(CEILINGS)}


def overhead(out: Path, seconds: float) -> dict[str, Any]:
    """Images/s of a bare loop and of the measured one, in turn, each with a loader of its own over the same files."""
    import torch
    from torch.utils.data import DataLoader

    from loaderprobe.compute.torch import CudaCompute
    from loaderprobe.loaders.torch import ImageFiles, InOrder, TorchLoader
    from loaderprobe.measure.clock import SystemClock
    from loaderprobe.measure.segments import Pace, train
    from loaderprobe.protocols import ComputeArguments
    from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
    from loaderprobe.samplers import sampling

    with tempfile.TemporaryDirectory() as place:
        files = some_files(Path(place))
        config = RunConfig(
            data=files.fingerprint, resolution=files.label, loader=LoaderSpec(workers=8, prefetch_factor=2),
            compute=ComputeSpec(name="cuda", batch_size=64),
        )  # fmt: skip
        plain = DataLoader(
            ImageFiles(files, "imagenet", "pillow", "float32"), batch_size=64, sampler=InOrder(), drop_last=True,
            num_workers=8, prefetch_factor=2, pin_memory=True,
        )  # fmt: skip
        with TorchLoader(config, files, Path(place)) as ours:
            # Workers are forked before CUDA is used.
            bare_batches, our_batches = iter(plain), ours.batches()
            clock = SystemClock()
            compute = CudaCompute(ComputeArguments(spec=config.compute, loader=config.loader, clock=clock))
            trainer = compute._trainer

            def bare() -> float:
                begin = time.monotonic()
                for _ in range(ROUND_BATCHES):
                    trainer.train_step(trainer.copy(next(bare_batches)))
                torch.cuda.synchronize()
                return 64 * ROUND_BATCHES / (time.monotonic() - begin)

            def measured() -> float:
                with sampling(clock, (), ours.workers, compute.uuid()):
                    begin = time.monotonic()
                    train(our_batches, compute, clock, Pace(min_batches=ROUND_BATCHES, max_batches=ROUND_BATCHES))
                    return 64 * ROUND_BATCHES / (time.monotonic() - begin)

            return alternated({"bare": bare, "measured": measured}, seconds - 25)


def alternated(loops: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The loops in turn, in either order: rates, and the median of the ratios of the rounds."""
    end = time.monotonic() + seconds
    for loop in loops.values():
        loop()
    rates: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(ROUNDS):
        if time.monotonic() > end:
            break
        for name in sorted(loops, reverse=bool(number % 2)):
            rates[name].append(loops[name]())
    ratios = sorted(m / b for b, m in zip(rates["bare"], rates["measured"], strict=True))
    middle = ratios[len(ratios) // 2] if ratios else None
    return {
        "images_per_s": rates, "measured_over_bare": middle, "ratios": ratios,
        "met": middle is not None and middle >= LEAST_RATIO,
    }  # fmt: skip


def some_files(place: Path) -> Any:
    from loaderprobe.api.generate import make_sets
    from loaderprobe.datasets.folder import generated_set
    from loaderprobe.datasets.generate.generate import SetRequest

    cores = len(os.sched_getaffinity(0))
    make_sets(place, [SetRequest(resolution=(256, 256))], count=2048, processes=cores, progress=lambda *_: None)
    return generated_set(place / "256x256", sample=2048, seed=0)


def timelines(out: Path, seconds: float) -> dict[str, Any]:
    """Serial, few and many workers on warm files, each with its window of the profiler."""
    return swept(out / "timelines", ((500, 375),), (0, 2, 16), ("warm",), seconds, budgeted=False)


def sweep(out: Path, seconds: float) -> dict[str, Any]:
    """3 resolutions, serial and 1 to 16 workers, warm and cold, one round each, in the time there is."""
    return swept(out / "run", RESOLUTIONS, WORKERS, ("cold", "warm"), seconds, budgeted=True)


def swept(run_path: Path, sizes: Any, workers: Any, caches: Any, seconds: float, *, budgeted: bool) -> dict[str, Any]:
    """A run directory, and its rows; `budgeted` deals the time out over the configurations."""
    from loaderprobe.api.generate import make_sets
    from loaderprobe.api.sweep_request import SweepRequest, check_request, compute_specs, loader_specs, start_sweep
    from loaderprobe.datasets.generate.generate import SetRequest
    from loaderprobe.records.config import SweepSpec
    from loaderprobe.render.json import summary_json

    begin, cores = time.monotonic(), len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as place:
        request = SweepRequest(
            data=None, data_dir=Path(place), out=run_path, resolutions=sizes, caches=caches, rounds=1,
            loaders=loader_specs(workers, prefetch_factor=2, decoder="torchvision"),
            computes=compute_specs([COMPUTE], batch_size=SWEEP_BATCH),
        )  # fmt: skip
        wanted = [SetRequest(resolution=size) for size in sizes]
        make_sets(Path(place), wanted, count=request.images_needed, processes=cores, progress=lambda *_: None)
        made_s = time.monotonic() - begin
        left_s = max(1.0, seconds - made_s - SWEEP_REST_S)
        spec = SweepSpec(configs=(), budget_s=left_s if budgeted else None, command=("scripts/gpu_check",))
        request = replace(request, spec=spec)
        check_request(request)
        run = start_sweep(request, processes=cores, on_data=lambda *_: None)
        shown = within(run, left_s)
    (run_path / "summary.json").write_text(summary_json(shown))
    return {"data_s": round(made_s, 1), "configurations": list(rows(shown, run))}


def within(run: Any, seconds: float) -> Any:
    """What was measured in so many seconds: the sweep ends as if Ctrl-C were pressed, and keeps what is done."""
    import signal

    from loaderprobe.api.load import judge_run
    from loaderprobe.api.sweep import measure

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, seconds))
    try:
        measure(run, lambda *_: None)
    except KeyboardInterrupt:
        pass  # what is done is kept and reported
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return judge_run(run)


def rows(shown: Any, run: Any) -> Iterator[dict[str, Any]]:
    """What each configuration came to, and its window of the profiler or why there is none."""
    for row in shown.summary.configurations:
        seen = run.result(row.key)
        timeline = getattr(seen, "timeline", None)
        missing = {each.name: remark_words(each.reason) for each in getattr(seen, "missing", ())}
        yield {
            "resolution": row.config.resolution, "workers": row.config.loader.workers, "cache": row.config.cache,
            "status": row.status,
            "reason": reason_words(row) or None, "images_per_s": row.images_per_s.value if row.images_per_s else None,
            "cause": row.bound.cause if row.bound else None,
            "window_steps": timeline.steps if timeline else None,
            "no_window": missing.get("gpu_timeline"),
        }  # fmt: skip
