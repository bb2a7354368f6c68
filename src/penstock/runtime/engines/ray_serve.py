"""Stages on Ray Serve: replicas on one machine or many, as many as the load asks for, which run batches.

An island asks, and knows nothing of Ray beyond this file. A replica that dies takes nothing with it: a stage is a
function, and what it was asked is asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import socket
import time
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import ray
from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import DeploymentUnavailableError

from penstock.errors import DeliveryError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import Stage
from penstock.runtime.engines.engine import Output
from penstock.runtime.engines.onnxruntime import OnnxRuntime
from penstock.runtime.engines.serve_config import ServeConfig

LOG = logging.getLogger("penstock.ray_serve")

PATIENCE_S = 60.0
"""How long a sample is asked again while replicas die."""

PAUSE_S = 0.1

REACH_S = 5.0
"""How long it may take to reach a cluster."""

STARTS = 3
"""How often a cluster of our own is started before it is given up."""


class RayServe:
    """One stage of a bundle as a deployment; it begins and ends with a ``with`` block.

    Args:
        front: who asks, such as the address of the island. Each front has a deployment of its own; one that was killed
            leaves it behind on a cluster that is not its own, and takes it over when it is started again.

    Raises:
        DeliveryError: when there is no such cluster, or the deployment does not come up.
    """

    def __init__(self, bundle: Bundle, stage: int, serving: ServeConfig = ServeConfig(), *, front: str | None = None):
        self._graph, self._stage = bundle.graphs[stage - 1], bundle.manifest.stages[stage - 1]
        self._serving = serving
        mark = secrets.token_hex(4) if front is None else hashlib.sha256(front.encode()).hexdigest()[:8]
        self.name = f"penstock-{bundle.manifest.id[:16]}-{stage}-{mark}"
        self._handle: Any = None

    def __enter__(self) -> RayServe:
        own = self._serving.cluster is None
        if self._serving.cluster not in (None, "auto"):
            _check_reachable(str(self._serving.cluster))
        try:
            if own:
                _start_cluster()
            else:
                ray.init(self._serving.cluster, **_SILENT)
            self._check_processors(own)
            serve.start(proxy_location="Disabled", logging_config=_QUIET)
            logging.getLogger("ray.serve").setLevel(logging.ERROR)  # a replica that dies is one line for each sample
            self._handle = serve.run(self._deployment(), name=self.name, route_prefix=None)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            self._end()
            where = "a Ray cluster of its own" if own else f"the Ray cluster at {self._serving.cluster}"
            raise DeliveryError(f"{self._stage.file} could not be served on {where}: {error}") from error
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def replicas(self) -> int:
        """How many replicas run now."""
        status = serve.status().applications.get(self.name)
        return 0 if status is None else sum(one.replica_states.get("RUNNING", 0) for one in status.deployments.values())

    async def run_sample(self, values: np.ndarray) -> Output:
        """Run the stage on one sample: the next free replica does, in a batch with what others ask."""
        until = None
        while True:
            try:
                given, gate = await self._handle.remote(values)
            except RayTaskError as error:
                raise DeliveryError(f"a replica failed on a sample: {error.cause}") from None
            except (RayError, DeploymentUnavailableError) as error:
                until = until or time.monotonic() + PATIENCE_S
                if time.monotonic() > until:
                    raise
                LOG.info("a replica is gone, and another one is asked: %s", error)
                await asyncio.sleep(PAUSE_S)
            else:
                return Output(given[None], None if gate is None else np.array([gate], np.float32))

    def _check_processors(self, own: bool) -> None:
        """Refuse what a cluster of our own has no processors for: Ray would wait for ever, and say nothing."""
        needed, there = self._serving.replicas.least * self._serving.threads, int(ray.cluster_resources().get("CPU", 0))
        text = f"{self._serving.replicas.least} replicas of {self._serving.threads} threads take {needed} processors"
        if needed > there and own:
            raise DeliveryError(f"{text}, and this machine has {there}: take fewer of either.")
        if needed > there:
            LOG.warning("%s, and the cluster has %d: waiting until it has more.", text, there)

    def _deployment(self) -> Any:
        serving, replicas = self._serving, self._serving.replicas
        scaled: dict[str, Any] = {"num_replicas": replicas.least}
        if replicas.least < replicas.most:
            scaled = {
                "autoscaling_config": {
                    "min_replicas": replicas.least,
                    "max_replicas": replicas.most,
                    "target_ongoing_requests": serving.batch,  # a replica that has a full batch to do is busy
                    "metrics_interval_s": min(10.0, serving.delay_s / 2),
                    "look_back_period_s": serving.delay_s,
                    "upscale_delay_s": serving.delay_s,
                    "downscale_delay_s": 6 * serving.delay_s,
                }
            }
        made = serve.deployment(
            _Replica,
            max_ongoing_requests=4 * serving.batch,
            ray_actor_options={"num_cpus": serving.threads},
            logging_config=_QUIET,
            **scaled,
        )
        return made.bind(self._stage, self._graph, serving.batch, serving.wait_ms / 1e3, serving.threads)

    def _end(self) -> None:
        """End the deployment, and a cluster of our own; on another's, what others deployed stays."""
        if ray.is_initialized():  # else Serve would start a cluster to look for it
            with contextlib.suppress(Exception):  # the cluster may be gone already, and so is all that was on it
                if self._handle is not None:
                    self._handle.shutdown()  # or its metrics would start a cluster of their own
                serve.delete(self.name)
            ray.shutdown()


def _start_cluster() -> None:
    """Start a cluster of our own. Ray's processes do not always find each other in time on a busy machine."""
    for left in reversed(range(STARTS)):
        try:
            ray.init("local", include_dashboard=False, **_SILENT)
        except Exception as error:  # Ray gives what goes wrong here no class of its own
            ray.shutdown()
            if not left:
                raise RuntimeError(f"Ray did not start in {STARTS} tries: {error}") from error
            LOG.warning("Ray did not start, and is started again: %s", error)
        else:
            return


def _check_reachable(cluster: str) -> None:
    """Refuse an address where nobody is: Ray itself takes minutes to find that out."""
    host, _, port = cluster.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise DeliveryError(
            f"no Ray cluster can be reached at {cluster!r}: {error}. Give the host:port of its head node, such as "
            "10.0.0.1:6379, or auto for the cluster that this machine belongs to."
        ) from error


_Given: TypeAlias = tuple[np.ndarray, float | None]
"""What a stage gives for one sample: values, and the gate's logit."""

_SILENT: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}

_QUIET = {"log_level": "WARNING", "enable_access_log": False}


class _Replica:
    """A process that runs the stage. The graph comes with it: machines of a cluster need no bundle."""

    def __init__(self, stage: Stage, graph: bytes, batch: int, wait_s: float, threads: int):
        self._engine = OnnxRuntime.from_stage(stage, graph, threads=threads)
        self._together.set_max_batch_size(batch)
        self._together.set_batch_wait_timeout_s(wait_s)

    async def __call__(self, values: np.ndarray) -> _Given:
        given = await self._together(values)
        if isinstance(given, Exception):
            raise given
        return given

    @serve.batch  # type: ignore[untyped-decorator]
    async def _together(self, samples: list[np.ndarray]) -> list[_Given | Exception]:
        try:
            return [*self._run(samples)]
        except Exception as error:  # of an engine, of any kind: one sample may have spoilt it for the others
            return [error] if len(samples) == 1 else [self._run_alone(sample) for sample in samples]

    def _run_alone(self, sample: np.ndarray) -> _Given | Exception:
        try:
            return self._run([sample])[0]
        except Exception as error:
            return error

    def _run(self, samples: list[np.ndarray]) -> list[_Given]:
        out = self._engine.run(np.stack(samples))
        gates = [None] * len(samples) if out.gate is None else [float(logit) for logit in out.gate]
        return list(zip(out.values, gates, strict=True))
