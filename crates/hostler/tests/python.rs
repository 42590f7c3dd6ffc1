//! uv installs the Python version that a project requires, if an admin allows it. Needs root, uv and Debian's Python.

use std::path::Path;
use std::process::Command;

use hostler_testkit::{Host, Network, Outcome, program, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const ADA: &str = "20001";

/// Directory on the node with uv and its downloads.
const TOOLS: &str = "/home/tools";

fn shell(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().expect("there is a shell");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Packs Debian's Python as a download for uv, with lists of downloads: one that names it and one that never ends.
/// Returns its version.
fn lay_out_downloads(tools: &Path) -> String {
    let version = shell("/usr/bin/python3 -c 'import sys; print(\"%d.%d.%d\" % sys.version_info[:3])'");
    let minor = version.rsplit_once('.').expect("three numbers").0.to_owned();
    let (at, name) = (tools.display(), format!("python{minor}"));
    let digest = shell(&format!(
        "cd '{at}'; mkdir -p python/bin python/lib; mkfifo endless.tar.gz
         cp /usr/bin/{name} python/bin/; ln -s {name} python/bin/python3; ln -s {name} python/bin/python
         tar -C /usr/lib -c --exclude=__pycache__ --exclude=test --exclude=dist-packages --exclude=sitecustomize.py \
            --exclude='config-*' {name} | tar -C python/lib -x
         tar -c python | gzip -1 > python.tar.gz; rm -r python; sha256sum python.tar.gz | cut -d' ' -f1"
    ));
    let download = |version: &str, file: &str, digest: &str| {
        let arch = std::env::consts::ARCH;
        let numbers: Vec<&str> = version.split('.').collect();
        format!(
            "\"cpython-{version}-linux-{arch}-gnu\": {{\"name\": \"cpython\", \"arch\": {{\"family\": \"{arch}\", \"variant\": null}}, \
             \"os\": \"linux\", \"libc\": \"gnu\", \"major\": {}, \"minor\": {}, \"patch\": {}, \"prerelease\": \"\", \
             \"url\": \"file://{TOOLS}/{file}\", \"sha256\": \"{digest}\", \"variant\": null, \"build\": \"1\"}}",
            numbers[0], numbers[1], numbers[2]
        )
    };
    let list = [download(&version, "python.tar.gz", &digest), download("3.28.0", "endless.tar.gz", &"0".repeat(64))];
    std::fs::write(tools.join("downloads.json"), format!("{{{}}}", list.join(", "))).expect("ours");
    version
}

/// Runs a hostler command as Ada.
fn ada(head: &Host, arguments: &[&str]) -> Outcome {
    let become_her = ["setpriv", "--reuid", ADA, "--regid", ADA, "--clear-groups", "env", "HOME=/home/ada", "hostler"];
    head.run(&[&become_her[..], arguments].concat())
}

/// Submits a project of Ada that requires these versions.
fn submit(head: &Host, versions: &str, more: &[&str]) -> Outcome {
    let project = format!("[project]\nname = 'x'\nversion = '1'\nrequires-python = '{versions}'\n");
    head.write("/home/ada/project/pyproject.toml", project);
    ada(head, &[&["submit", "/home/ada/project", "main.py", "-c", "1", "-m", "400M"], more].concat())
}

/// The setup log of a job.
fn setup_of(head: &Host, id: &str) -> String {
    ada(head, &["logs", "--setup", id]).stderr
}

#[test]
fn uv_installs_the_required_python_if_an_admin_allows_it() {
    let uv = program("uv", "install it with pip");
    let network = Network::new(HOSTLER);
    let (head, _runs) = network.head();
    let n1 = network.host("n1");
    for host in [&head, &n1] {
        host.ok(&["useradd", "--uid", ADA, "--user-group", "--create-home", "ada"]);
    }
    std::fs::create_dir(n1.path(TOOLS)).expect("new");
    std::fs::copy(uv, n1.path(TOOLS).join("uv")).expect("uv can be copied");
    let version = lay_out_downloads(&n1.path(TOOLS));
    let minor = version.rsplit_once('.').expect("three numbers").0;
    let main = "import os, sys\nprint(sys.version.split()[0], os.getuid(), sys.base_prefix)\n";
    head.write("/home/ada/project/main.py", main);
    // The node has no Python of its own.
    let hide = "for it in /usr/bin/python3.* /usr/local/bin/python3*; do
                [ ! -f \"$it\" ] || mount --bind /dev/null \"$(readlink -f \"$it\")\"; done";
    n1.ok(&["sh", "-ec", hide]);
    n1.join(&head);
    let run_agent = || {
        let path = format!("PATH=/run/bin:{TOOLS}:/usr/local/bin:/usr/bin:/bin");
        let list = format!("UV_PYTHON_DOWNLOADS_JSON_URL=file://{TOOLS}/downloads.json");
        let agent = n1.daemon("agent", &["env", &path, &list, "hostler", "agent", "run"]);
        wait_until("the node to be up", 30, || (head.json(&["hostler", "nodes"])[0]["state"] == "up").then_some(()));
        agent
    };
    let features = || head.json(&["hostler", "nodes"])[0]["features"].to_string();

    // By default uv may not install Python; the error names the setting that allows it.
    let agent = run_agent();
    assert!(!features().contains("python"), "{}", features());
    let wanted = format!("=={minor}.*,>=3.4");
    let refused = submit(&head, &wanted, &[]);
    assert!(refused.code != 0 && refused.stderr.contains("the nodes have no Python"), "{refused:?}");
    assert!(refused.stderr.contains("install_python = true in its agent.toml"), "{refused:?}");
    agent.kill_9();
    wait_until("the node to be down", 60, || (head.json(&["hostler", "nodes"])[0]["state"] != "up").then_some(()));

    n1.write("/etc/hostler/agent.toml", "install_python = true\n");
    let _agent = run_agent();
    wait_until("the node to report the feature", 30, || features().contains("python-install").then_some(()));
    let ran = submit(&head, &wanted, &["--wait"]);
    let id = ran.stdout.trim();
    let setup = setup_of(&head, id);
    assert_eq!(ran.code, 0, "{ran:?} {setup}");
    let told = ada(&head, &["logs", id]).stdout;
    let cache = format!("/environments/users/{ADA}/envs/");
    assert!(told.starts_with(&format!("{version} {ADA} /")) && told.contains(&cache), "{told} {setup}");
    assert!(setup.contains(&format!("cpython-{version}")), "{setup}");
    // The installation belongs to Ada and is reused by her next job.
    let prefix = told.split_whitespace().nth(2).expect("three words");
    assert_eq!(n1.ok(&["stat", "-c", "%u", &format!("{prefix}/bin/python{minor}")]), ADA);
    assert!(!n1.path("/home/ada/.local").exists(), "the home is not used");
    let again = submit(&head, &wanted, &["--wait"]);
    let setup = setup_of(&head, again.stdout.trim());
    assert!(again.code == 0 && setup.contains("found in the cache"), "{again:?} {setup}");

    // The installation runs in the job's cgroup, as its user, and ends at its time limit.
    let endless = submit(&head, "==3.28.*", &["-t", "8s"]);
    let id = endless.stdout.trim();
    let installer = || {
        let found = n1.run(&["pgrep", "-u", ADA, "-f", "uv venv"]);
        found.stdout.lines().next().map(str::to_owned)
    };
    let pid = wait_until("uv to run", 30, installer);
    let group = n1.ok(&["cat", &format!("/proc/{pid}/cgroup")]);
    assert!(group.contains(&format!("-{id}_")) && group.contains("-build-"), "{group}");
    assert_ne!(ada(&head, &["wait", id]).code, 0);
    let job = ada(&head, &["job", id, "--json"]).stdout;
    assert!(job.contains("\"timeout\"") && job.contains("exceeded the job's time limit"), "{job}");
    assert_eq!(installer(), None, "the installer has ended");
    // Python 3.27 does not exist, and the job shows the error of uv.
    let none = submit(&head, "==3.27.*", &["--wait"]);
    let job = ada(&head, &["job", none.stdout.trim(), "--json"]).stdout;
    assert!(none.code != 0 && job.contains("No interpreter found for Python ==3.27.*"), "{none:?} {job}");
}
