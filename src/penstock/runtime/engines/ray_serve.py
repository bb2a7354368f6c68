"""Run a stage on Ray Serve: in batches, on replicas on one machine or many, scaled with the load.

Only this file knows Ray. A replica that dies loses nothing: stages have no state, and its samples are sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import socket
import time
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

RETRY_S = 60.0  # how long a sample is sent again while replicas die
RETRY_PAUSE_S = 0.1
CONNECT_TIMEOUT_S = 5.0  # for a cluster
STARTS = 3  # attempts to start a cluster


class RayServe:
    """A `RemoteEngine` that runs one stage of a bundle as a deployment, within a ``with`` block.

    Args:
        front: identifies the island, for example by its address. Each island has its own deployment; on a cluster that
            it did not start, an island that was killed and restarted takes its old deployment over.

    Raises:
        DeliveryError: on entering, if the cluster cannot be reached or the deployment does not start.
    """

    def __init__(self, bundle: Bundle, stage: int, config: ServeConfig = ServeConfig(), *, front: str | None = None):
        self._graph, self._stage = bundle.graphs[stage - 1], bundle.manifest.stages[stage - 1]
        self._config = config
        mark = secrets.token_hex(4) if front is None else hashlib.sha256(front.encode()).hexdigest()[:8]
        self.name = f"penstock-{bundle.manifest.id[:16]}-{stage}-{mark}"
        self._handle: Any = None

    def __enter__(self) -> RayServe:
        own = self._config.cluster is None
        if self._config.cluster not in (None, "auto"):
            _check_reachable(str(self._config.cluster))
        try:
            if own:
                _start_cluster()
            else:
                ray.init(self._config.cluster, **_SILENT)
            self._check_processors(own)
            serve.start(proxy_location="Disabled", logging_config=_QUIET)
            logging.getLogger("ray.serve").setLevel(logging.ERROR)  # it logs a line per sample of a replica that dies
            self._handle = serve.run(self._deployment(), name=self.name, route_prefix=None)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            self._stop()
            where = "a new Ray cluster" if own else f"the Ray cluster at {self._config.cluster}"
            raise DeliveryError(f"cannot serve {self._stage.file} on {where}: {error}") from error
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    @property
    def replicas(self) -> int:
        """How many replicas are running."""
        status = serve.status().applications.get(self.name)
        states = [] if status is None else [each.replica_states for each in status.deployments.values()]
        return sum(counts.get("RUNNING", 0) for counts in states)

    async def run_sample(self, values: np.ndarray) -> Output:
        """Run the stage on one sample, on the next free replica, in a batch with concurrent ones."""
        deadline = None
        while True:
            try:
                output, gate = await self._handle.remote(values)
            except RayTaskError as error:
                raise DeliveryError(f"a replica failed on a sample: {error.cause}") from None
            except (RayError, DeploymentUnavailableError) as error:
                deadline = deadline or time.monotonic() + RETRY_S
                if time.monotonic() > deadline:
                    raise
                LOG.info("a replica has died; trying another one: %s", error)
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                return Output(output[None], None if gate is None else np.array([gate], np.float32))

    def _check_processors(self, own: bool) -> None:
        """Raise if our own cluster has too few processors: Ray would wait for them forever."""
        replicas, threads = self._config.replicas.least, self._config.threads
        needed, available = replicas * threads, int(ray.cluster_resources().get("CPU", 0))
        text = f"{replicas} replicas of {threads} threads need {needed} processors"
        if needed > available and own:
            raise DeliveryError(f"{text}, but this machine has {available}: use fewer of either.")
        if needed > available:
            LOG.warning("%s, but the cluster has %d; waiting for more", text, available)

    def _deployment(self) -> Any:
        config, replicas = self._config, self._config.replicas
        scaling: dict[str, Any] = {"num_replicas": replicas.least}
        if replicas.least < replicas.most:
            scaling = {
                "autoscaling_config": {
                    "min_replicas": replicas.least,
                    "max_replicas": replicas.most,
                    "target_ongoing_requests": config.batch,  # a replica with a full batch is busy
                    "metrics_interval_s": min(10.0, config.delay_s / 2),
                    "look_back_period_s": config.delay_s,
                    "upscale_delay_s": config.delay_s,
                    "downscale_delay_s": 6 * config.delay_s,
                }
            }
        deployment = serve.deployment(
            _Replica,
            max_ongoing_requests=4 * config.batch,
            ray_actor_options={"num_cpus": config.threads},
            logging_config=_QUIET,
            **scaling,
        )
        return deployment.bind(self._stage, self._graph, config.batch, config.wait_ms / 1e3, config.threads)

    def _stop(self) -> None:
        """Delete the deployment, and stop the cluster if it is our own; others' deployments stay."""
        if ray.is_initialized():  # otherwise Serve would start a cluster to look for the deployment
            with contextlib.suppress(Exception):  # the cluster may be gone, and the deployment with it
                if self._handle is not None:
                    self._handle.shutdown()  # otherwise its metrics would start another cluster
                serve.delete(self.name)
            ray.shutdown()


def _start_cluster() -> None:
    """Start a cluster on this machine; on a busy one, Ray's processes do not always find each other in time."""
    for left in reversed(range(STARTS)):
        try:
            ray.init("local", include_dashboard=False, **_SILENT)
        except Exception as error:  # Ray has no class for such errors
            ray.shutdown()
            if not left:
                raise RuntimeError(f"Ray did not start in {STARTS} attempts: {error}") from error
            LOG.warning("Ray did not start; trying again: %s", error)
        else:
            return


def _check_reachable(cluster: str) -> None:
    """Raise if nothing listens at an address: Ray itself would take minutes to notice."""
    host, _, port = cluster.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise DeliveryError(
            f"cannot reach a Ray cluster at {cluster!r}: {error}. Give host:port of its head node, such as "
            "10.0.0.1:6379, or auto for the cluster of this machine."
        ) from error


_SampleOutput: TypeAlias = tuple[np.ndarray, float | None]  # values, and the gate's logit

_SILENT: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
_QUIET = {"log_level": "WARNING", "enable_access_log": False}


class _Replica:
    """A process that runs the stage. It gets the graph as bytes: machines of the cluster need no bundle."""

    def __init__(self, stage: Stage, graph: bytes, batch: int, wait_s: float, threads: int):
        self._engine = OnnxRuntime.from_stage(stage, graph, threads=threads)
        self._run_batch.set_max_batch_size(batch)
        self._run_batch.set_batch_wait_timeout_s(wait_s)

    async def __call__(self, values: np.ndarray) -> _SampleOutput:
        output = await self._run_batch(values)
        if isinstance(output, Exception):
            raise output
        return output

    @serve.batch  # type: ignore[untyped-decorator]
    async def _run_batch(self, samples: list[np.ndarray]) -> list[_SampleOutput | Exception]:
        return self._run(samples)

    def _run(self, samples: list[np.ndarray]) -> list[_SampleOutput | Exception]:
        try:
            out = self._engine.run(np.stack(samples))
            gates = [None] * len(samples) if out.gate is None else [float(logit) for logit in out.gate]
            return list(zip(out.values, gates, strict=True))
        except Exception as error:  # perhaps because of one of the samples
            return [error] if len(samples) == 1 else [self._run([sample])[0] for sample in samples]
