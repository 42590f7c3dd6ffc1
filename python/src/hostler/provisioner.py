"""Lets Jupyter's own programs run kernels on a cluster: the provisioner ``hostler`` of `jupyter_client`.

The kernelspec names it; see `hostler.kernel`. It lives in the process of JupyterLab, nbclient or papermill. If that
process is killed, the kernel and its job continue, and the next server that opens the notebook connects to them again.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase

from hostler.errors import HostlerError
from hostler.jupyter.kernel import CHANNELS, Kernel, ipc_connection
from hostler.jupyter.kernel_job import Options, find_lost, inode
from hostler.kernel import launch_options


class HostlerProvisioner(KernelProvisionerBase):
    """Runs a kernel as a job. A restart keeps the job."""

    _kernel: Kernel | None = None
    _directory: Path | None = None
    _options = Options()
    _has_process = False
    _restart_limit: int | None = None

    @property
    def has_process(self) -> bool:
        """Whether there is a kernel whose end was not yet waited for."""
        return self._has_process

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Return the command of the kernelspec, which has the options."""
        extra = kwargs.pop("extra_arguments", [])
        manager = self.parent
        command = manager.format_kernel_cmd(extra_arguments=extra) if manager else self.kernel_spec.argv + extra
        return await super().pre_launch(cmd=command, **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel: in its job if that still runs, otherwise in a new one.

        Raises
        ------
        HostlerError
            If there will be no kernel. The message says why.
        TimeoutError
            If the job does not start in time. Nothing remains in the queue.
        """
        if self._directory is None:
            key = self.parent.session.key if self.parent else os.urandom(32).hex().encode()
            self._directory, info = ipc_connection(key, getattr(self.parent, "kernel_name", ""))
            self._bound = {**info, "ip": f"{info['ip']}b"}
            self.connection_info = {**info, "key": key}  # type: ignore[typeddict-item]
        # Jupyter deletes the sockets before each restart, while clients are connected to them. So it knows links.
        for number in range(1, len(CHANNELS) + 1):
            link = Path(f"{self.connection_info['ip']}-{number}")
            link.unlink(missing_ok=True)
            link.symlink_to(f"{self._bound['ip']}-{number}")
        kernel = self._kernel
        if kernel is not None and kernel.ended is None:
            await _in_thread(functools.partial(kernel.restart, self._options.timeout), kernel)
        else:
            self._options = launch_options(cmd[cmd.index("launch") + 1 :])
            env = kwargs.get("env") or os.environ
            own = tuple(self.kernel_spec.env)
            options = Options(**{**vars(self._options), "env": (*self._options.env, *own, "JPY_SESSION_NAME")})
            # A server sets it for each kernel. What it was started with itself means another notebook.
            notebook = env.get("JPY_SESSION_NAME")
            if not notebook or notebook == os.environ.get("JPY_SESSION_NAME") or inode(notebook) is None:
                notebook = None
            self._kernel = await self._continued(notebook) if notebook else None
            kernel = self._kernel or Kernel(self._bound, self.log.info)
            if not self._kernel:
                directory = os.path.abspath(kwargs.get("cwd") or os.getcwd())
                launch = functools.partial(kernel.launch, options, directory, env, notebook=notebook)
                await _in_thread(launch, kernel)
                self._kernel = kernel
            # A program that ends without a word to its kernel has forgotten it; one that is killed has not.
            atexit.register(kernel.end)
        self._has_process = True
        self._allow_restarts(True)
        return self.connection_info

    async def _continued(self, notebook: str) -> Kernel | None:
        """Return the kernel of a notebook that a killed program left running, if there is one."""
        head = self._options.head or os.environ.get("HOSTLER_HEAD")
        found = await asyncio.to_thread(find_lost, notebook, self._bound["kernel_name"], head)
        if found is None:
            return None
        running, claim = found
        bound = {**self._bound, "key": running.key}
        kernel = Kernel(bound, self.log.info)
        try:
            await _in_thread(functools.partial(kernel.take_over, running, claim), kernel)
        except (HostlerError, TimeoutError) as error:
            self.log.warning("the kernel of job %s is not used again: %s", running.job, error)
            return None
        self._bound = bound
        self.connection_info["key"] = running.key.encode()  # type: ignore[typeddict-item]
        return kernel

    async def poll(self) -> int | None:
        """Return None while the kernel runs, also if it cannot be reached, otherwise its exit code."""
        if self._kernel is None:
            return 0
        if self._kernel.ended is not None:
            # A new kernel would need a new job, which nobody asked for.
            self._allow_restarts(False)
            return self._kernel.exit_code or 1
        return self._kernel.exit_code

    async def wait(self) -> int | None:
        """Wait for the end of the kernel's process."""
        while (code := await self.poll()) is None:
            await asyncio.sleep(0.1)
        self._has_process = False
        return code

    async def send_signal(self, signum: int) -> None:
        """Send a signal to the kernel, as soon as it can be reached."""
        if self._kernel:
            self._kernel.send_signal(signum)

    async def kill(self, restart: bool = False) -> None:
        """Kill the kernel, not its job."""
        await self.send_signal(9)

    async def terminate(self, restart: bool = False) -> None:
        """Ask the kernel to end, not its job."""
        await self.send_signal(15)

    async def cleanup(self, restart: bool = False) -> None:
        """End the job, unless the kernel is restarted."""
        if restart or self._kernel is None:
            return
        atexit.unregister(self._kernel.end)
        await _in_thread(self._kernel.end, self._kernel)
        self._kernel = None
        self._has_process = False
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    async def get_provisioner_info(self) -> dict[str, Any]:
        """Return what is known of the kernel, with its job."""
        running = self._kernel.running if self._kernel else None
        return {**await super().get_provisioner_info(), "job": running.job if running else None}

    def _allow_restarts(self, allowed: bool) -> None:
        restarter = getattr(self.parent, "_restarter", None)
        if restarter is None:
            return
        if self._restart_limit is None:
            self._restart_limit = restarter.restart_limit
        restarter.restart_limit = self._restart_limit if allowed else 0


async def _in_thread(call: Callable[[], object], kernel: Kernel) -> None:
    """Call a function in a thread that does not keep the process alive. If this is cancelled, so is the launch."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # Python is about to exit, and starts no thread any more.
        run()
    try:
        while thread.is_alive():
            await asyncio.sleep(0.05)
    finally:
        if thread.is_alive():
            kernel.cancel_launch()
    if errors:
        raise errors[0]
