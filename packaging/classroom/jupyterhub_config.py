"""JupyterHub of a classroom, on a machine or in a container where no student logs in or runs programs.

Another user of the hub's machine could take a port of its and get the cookies of others; see docs/personas/classroom.md
and docs/guides/jupyter.md.

Students sign in with the password of their account on this machine. Set `c.JupyterHub.authenticator_class` for another
sign-in, such as that of your university; its names must be those of the roster.
"""

c = get_config()  # noqa: F821

c.JupyterHub.spawner_class = "hostler.jupyterhub.HostlerSpawner"
c.JupyterHub.cleanup_servers = False
c.Authenticator.allow_all = True

# Notebooks run on the user node. From there, students submit experiments to the partitions `lab` and `measure`.
c.HostlerSpawner.partitions = ["notebooks"]
c.HostlerSpawner.cmd = ["/opt/jupyter/bin/jupyterhub-singleuser"]
c.HostlerSpawner.max_cpus = 1
c.HostlerSpawner.max_memory_gib = 2
c.HostlerSpawner.default_memory_gib = 1
c.HostlerSpawner.max_hours = 4
c.HostlerSpawner.default_hours = 2
