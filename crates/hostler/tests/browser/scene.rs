//! A cluster of four nodes with jobs in all states, as a person would find it on a busy day.

use hostler_testkit::{Cluster, Size};

/// Names and contents that must never become part of a page's structure.
pub(crate) const HOSTILE: &str = "<img src=x onerror=window.harmed=1><script>window.harmed=1</script>\"'`&lt;";

/// The cluster, and the ids of its jobs.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) completed: String,
    pub(crate) failed: String,
    pub(crate) waiting: String,
    pub(crate) running: String,
    pub(crate) array: String,
    pub(crate) hostile: String,
}

impl Scene {
    pub(crate) fn set(executable: &str) -> Self {
        let cluster = Cluster::up(executable, Size { nodes: 4, cpus: 2, ..Size::default() });
        cluster.write("project/main.sh", "echo 'epoch,loss\n1,0.5\n2,0.25' > loss.csv; echo trained; sleep 0.2\n");
        let script = format!("printf '%s\\n' '{}' | tee note.html note.svg; exit 7\n", HOSTILE.replace('\'', "'\\''"));
        cluster.write("hostile/main.sh", script);
        let detach = |words: &[&str]| cluster.ok(&[&["run", "--detach", "-m", "16M"], words].concat());
        let completed =
            cluster.ok(&["submit", &folder(&cluster, "project"), "main.sh", "-m", "16M", "--name", "train"]);
        let hostile = cluster.ok(&["submit", &folder(&cluster, "hostile"), "main.sh", "-m", "16M", "--name", HOSTILE]);
        let failing =
            "echo reading; for i in 1 2 3; do echo \"line $i\" >&2; done; echo 'no such file: data.csv' >&2; exit 3";
        let failed = detach(&["--name", "evaluate", "--", "sh", "-c", failing]);
        let timed_out = detach(&["-t", "1s", "--", "sleep", "60"]);
        let array = detach(&["-a", "1-6", "--", "sh", "-c", "exit $((HOSTLER_ARRAY_INDEX % 2))"]);
        let cancelled = detach(&["--hold", "--", "true"]);
        cluster.ok(&["cancel", &cancelled]);
        for (id, state) in
            [(&completed, "completed"), (&hostile, "failed"), (&failed, "failed"), (&timed_out, "timeout")]
        {
            cluster.wait_for_state(id, state);
        }
        cluster.wait_for_state(&array, "failed");
        detach(&["--hold", "--name", "held", "--", "true"]);
        let talk = "printf '\\033[31mred\\033[0m\\n'; i=0; while :; do echo \"step $i\"; i=$((i+1)); sleep 0.5; done";
        let running = detach(&["--name", "simulate", "-c", "2", "-t", "1h", "--", "sh", "-c", talk]);
        cluster.wait_for_state(&running, "running");
        let rest: Vec<String> = (0..3).map(|_| detach(&["-c", "2", "-t", "1h", "--", "sleep", "3600"])).collect();
        rest.iter().for_each(|id| cluster.wait_for_state(id, "running"));
        let waiting = detach(&["--name", "next", "-c", "2", "--", "true"]);
        Self { cluster, completed, failed, waiting, running, array, hostile }
    }
}

fn folder(cluster: &Cluster, name: &str) -> String {
    cluster.path(name).display().to_string()
}
