//! Users and permissions: by uid on the sockets of the head and of nodes, and remotely by key or code. A real head,
//! agent and keys; other users are other uids, so this needs root.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use hostler_client::{Client, Endpoint};
use hostler_testkit::{Cluster, create_private, free_port, hide_people_for_this_thread, wait_until};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::{ServerConfig, crypto};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A head that users of its machine share, as on a server.
struct Site {
    cluster: Cluster,
    /// Address of the head, the same after a restart.
    listen: String,
    daemons: Vec<Child>,
}

impl Site {
    fn start() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "this test is several users: run it as root");
        // The test chooses names and uids that people may have on this machine.
        hide_people_for_this_thread();
        let cluster = Cluster::none(HOSTLER);
        // All users must reach the sockets, as in /run.
        fs::set_permissions(cluster.home(), Permissions::from_mode(0o755)).expect("the test owns the file");
        fs::copy(HOSTLER, cluster.path("hostler")).expect("the executable can be copied");
        let mut site = Self { cluster, listen: format!("127.0.0.1:{}", free_port()), daemons: Vec::new() };
        site.start_head();
        // The users of the tests are accounts that every Debian has.
        site.admin(&["configure", "setting", "system-accounts", "yes"]);
        site
    }

    fn start_head(&mut self) {
        let directory = self.cluster.path("head");
        let _ = fs::remove_file(directory.join("head.json"));
        let (text, socket, listen) = (directory.display().to_string(), self.socket(), self.listen.clone());
        self.cluster.ok(&["head", "init", "--directory", &text]);
        self.spawn(&["head", "run", "--directory", &text, "--socket", &socket, "--listen", &listen]);
        wait_until("the head is ready", 30, || directory.join("head.json").exists().then_some(()));
    }

    /// Starts a node with its own socket.
    fn start_agent(&mut self) -> String {
        let code = self.invite_node("n1");
        let code = self.cluster.write("code", code).display().to_string();
        let (directory, socket) = (self.path("agent"), self.path("agent.sock"));
        let name = ["agent", "run", "--name", "n1", "--cpus", "0-1", "--memory", "256M"];
        let places = ["--directory", &directory, "--socket", &socket, "--join-file", &code];
        self.spawn(&[&name[..], &places].concat());
        wait_until("the node is up", 30, || {
            let up = self.cluster.json(&["--head", &self.socket(), "info"])["nodes"]["up"] == 1;
            (up && Path::new(&socket).exists()).then_some(())
        });
        socket
    }

    fn spawn(&mut self, arguments: &[&str]) {
        let log = fs::File::create(self.cluster.path(&format!("state/{}.log", self.daemons.len())));
        let log = log.or_else(|_| {
            fs::create_dir_all(self.cluster.path("state"))?;
            fs::File::create(self.cluster.path(&format!("state/{}.log", self.daemons.len())))
        });
        let mut command = self.cluster.command(arguments);
        command.stderr(log.expect("a file can be made")).stdout(Stdio::null());
        self.daemons.push(command.spawn().expect("the executable can be started"));
    }

    fn path(&self, name: &str) -> String {
        self.cluster.path(name).display().to_string()
    }

    fn socket(&self) -> String {
        self.path("head.sock")
    }

    fn address(&self) -> String {
        let text = fs::read(self.cluster.path("head/head.json")).expect("the head has said where it is");
        let said: Value = serde_json::from_slice(&text).expect("JSON");
        said["address"].as_str().expect("an address").to_owned()
    }

    fn authority(&self) -> String {
        let info = self.cluster.json(&["--head", &self.socket(), "info"]);
        info["head"]["authority"].as_str().expect("a fingerprint").to_owned()
    }

    /// Runs a command as an admin.
    fn admin(&self, arguments: &[&str]) -> String {
        self.cluster.ok(&[&["--head", &self.socket()], arguments].concat())
    }

    /// A join code for a node.
    fn invite_node(&self, name: &str) -> String {
        let client = Client::new(Endpoint::Unix(self.socket().into()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let invited = runtime.block_on(client.invite(&name.parse().expect("a valid name")));
        invited.expect("root may invite").code
    }

    /// Runs a command as another user of this machine.
    fn as_user(&self, user: &str, socket: &str, arguments: &[&str]) -> Output {
        let home = self.cluster.path(&format!("home-{user}"));
        fs::create_dir_all(&home).expect("a directory can be made");
        let (reuid, regid) = (format!("--reuid={user}"), format!("--regid={user}"));
        Command::new("setpriv")
            .args([reuid.as_str(), &regid, "--clear-groups", "--"])
            .arg(self.cluster.path("hostler"))
            .args(["--head", socket])
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("HOME", home)
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .expect("setpriv is installed")
    }

    /// Runs a command of a remote user, with its own home and no socket.
    fn elsewhere(&self, home: &str, arguments: &[&str]) -> Output {
        self.with_code(home, arguments, "")
    }

    /// Runs a command on another machine with a code on standard input.
    fn with_code(&self, home: &str, arguments: &[&str], code: &str) -> Output {
        create_private(Path::new(&self.path(&format!("{home}/run"))));
        let code = fs::File::open(self.cluster.write("stdin", code)).expect("it was just written");
        let mut command = self.cluster.command(arguments);
        command.env("HOME", self.path(home)).env("XDG_CONFIG_HOME", self.path(&format!("{home}/.config")));
        command.env("XDG_RUNTIME_DIR", self.path(&format!("{home}/run")));
        command.stdin(code).output().expect("the executable can be started")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // Dropping the cluster ends remaining processes of jobs.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

#[track_caller]
fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The error of a command that must fail.
#[track_caller]
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(4), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr)
}

/// Creates a key with `ssh-keygen`.
fn key(directory: &Path, name: &str, more: &[&str]) -> PathBuf {
    fs::create_dir_all(directory).expect("a directory can be made");
    let path = directory.join(name);
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-N", "", "-C", name, "-f"]).arg(&path).args(more);
    assert!(command.status().expect("ssh-keygen is installed").success());
    path
}

/// Checks what an operator and the owner of a job may change of it.
fn assert_changes(site: &Site, socket: &str) {
    let owner = |words: &[&str]| site.as_user("games", socket, words);
    let operator = |words: &[&str]| site.as_user("mail", socket, words);
    let running = ok(&owner(&["run", "--detach", "-m", "16M", "-t", "1h", "--", "sleep", "600"]));
    let waiting = ok(&owner(&["run", "--detach", "--begin", "+1d", "-m", "16M", "--", "true"]));
    ok(&operator(&["hold", &waiting]));
    let said = refused(&owner(&["release", &waiting]));
    assert!(said.contains("is held by an operator"), "{said}");
    let scontrol = site.cluster.path("scontrol");
    std::os::unix::fs::symlink(HOSTLER, &scontrol).expect("a link can be made");
    let shown = Command::new(scontrol).args(["show", "job", "-o", &waiting]).env("HOSTLER_HEAD", socket).output();
    let shown = ok(&shown.expect("the program starts"));
    assert!(shown.contains(" Reason=JobHeldAdmin "), "{shown}");
    let said = refused(&owner(&["update", &waiting, "--priority", "5"]));
    assert!(said.contains("users may set a priority of at most 0"), "{said}");
    ok(&operator(&["update", &waiting, "--priority", "5"]));
    ok(&owner(&["update", &waiting, "--time", "2h", "--tag", "a=b"]));
    wait_until("the job to run", 30, || {
        let job: Value = serde_json::from_str(&ok(&owner(&["job", &running, "--json"]))).expect("JSON");
        (job["state"] == "running").then_some(())
    });
    let said = refused(&owner(&["update", &running, "--time", "2h"]));
    assert!(said.contains("only operators raise the time limit"), "{said}");
    ok(&operator(&["update", &running, "--time", "2h"]));
    ok(&owner(&["update", &running, "--time", "30m"]));
    ok(&operator(&["cancel", &running, &waiting]));
}

#[test]
fn users_cannot_act_on_jobs_of_others() {
    let mut site = Site::start();
    let socket = site.socket();
    let agent_socket = site.start_agent();
    for socket in [&socket, &agent_socket] {
        let id = ok(&site.as_user("games", socket, &["run", "--detach", "--hold", "-m", "16M", "--", "sleep", "600"]));
        let job: Value =
            serde_json::from_str(&ok(&site.as_user("mail", socket, &["job", &id, "--json"]))).expect("JSON");
        assert_eq!(job["user"], "games", "all users see the owner");
        let said = refused(&site.as_user("mail", socket, &["update", &id, "--name", "x"]));
        assert!(said.contains("belongs to games"), "{said}");
        for verb in ["cancel", "release", "requeue", "logs", "attach"] {
            let said = refused(&site.as_user("mail", socket, &[verb, &id]));
            assert!(said.contains("belongs to games"), "{verb}: {said}");
        }
        assert!(refused(&site.as_user("mail", socket, &["fetch", &id])).contains("belongs to games"));
        // An operator may, until the role is withdrawn. Through a node, operators have no special rights.
        if *socket == agent_socket {
            assert!(refused(&site.as_user("mail", socket, &["hold", &id])).contains("belongs to games"));
            site.admin(&["configure", "user", "add", "mail", "--role", "operator"]);
            assert!(refused(&site.as_user("mail", socket, &["release", &id])).contains("belongs to games"));
            site.admin(&["configure", "user", "remove", "mail"]);
        } else {
            site.admin(&["configure", "user", "add", "mail", "--role", "operator"]);
            ok(&site.as_user("mail", socket, &["release", &id]));
            assert_changes(&site, socket);
            site.admin(&["configure", "user", "role", "mail", "user"]);
            assert!(refused(&site.as_user("mail", socket, &["hold", &id])).contains("belongs to games"));
            site.admin(&["configure", "user", "remove", "mail"]);
        }
        ok(&site.as_user("games", socket, &["cancel", &id]));
    }
    // Root on a node has no special rights in the cluster.
    let said = refused(
        &site
            .cluster
            .command(&["--head", &agent_socket, "configure", "user", "list"])
            .output()
            .expect("the program starts"),
    );
    assert!(said.contains("only admins may do this") && said.contains("root@n1"), "{said}");
    let said = refused(&site.as_user("games", &socket, &["configure", "user", "add", "eve"]));
    assert!(said.contains("only admins may do this"), "{said}");
    // The audit log contains all of this, and only admins can read it.
    let entries: Vec<Value> = wait_until("the audit log to have all entries", 20, || {
        let entries: Vec<Value> = serde_json::from_str(&site.admin(&["configure", "audit", "--json"])).expect("JSON");
        entries.iter().any(|it| it["user"] == "games" && it["error"] == "admins_only").then_some(entries)
    });
    let find = |user: &str, action: &str, from: &str| {
        entries.iter().find(|it| {
            it["user"] == user && it["from"] == from && it["action"].as_str().is_some_and(|it| it.starts_with(action))
        })
    };
    assert_eq!(find("games", "POST /jobs", "socket").expect("a submission")["about"], "job 1");
    assert_eq!(find("games", "POST /jobs", "node").expect("a submission")["node"], "n1");
    assert_eq!(find("mail", "POST /jobs/1/cancel", "socket").expect("a refusal")["error"], "not_yours");
    assert!(find("root", "POST /users", "socket").is_some());
    assert!(refused(&site.as_user("games", &socket, &["configure", "audit"])).contains("only admins may do this"));
}

#[test]
fn output_and_terminals_work_through_a_node() {
    let mut site = Site::start();
    let socket = site.start_agent();
    let cluster = &site.cluster;
    let games = |arguments: &[&str]| ok(&site.as_user("games", &socket, arguments));
    let state =
        |id: &str| serde_json::from_str::<Value>(&games(&["job", id, "--json"])).expect("JSON")["state"].clone();
    let output = games(&["run", "-m", "16M", "--", "sh", "-c", "echo one; sleep 0.3; echo two"]);
    assert_eq!(output, "one\ntwo");
    // Root on a node is unknown to other nodes.
    let said = cluster.run(&["--head", &socket, "run", "-m", "16M", "--", "true"]).stderr;
    assert!(said.contains("jobs of a node's root account are not run"), "{said}");
    let folder = cluster.write("project/main.sh", "#!/bin/sh\necho made > made.txt\n");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("the test owns the file");
    let project = site.path("project");
    let id = games(&["submit", &project, "main.sh", "-m", "16M"]);
    games(&["wait", &id]);
    fs::create_dir(cluster.path("out")).expect("a directory can be made");
    fs::set_permissions(cluster.path("out"), Permissions::from_mode(0o777)).expect("the test owns the file");
    games(&["fetch", &id, "--to", &site.path("out")]);
    assert_eq!(
        fs::read_to_string(cluster.path(&format!("out/{id}/made.txt"))).expect("the result was fetched"),
        "made\n"
    );
    // A terminal connection is an upgraded HTTP connection.
    let id = games(&["run", "--pty", "--detach", "-m", "16M", "--", "cat"]);
    wait_until("the job to run", 30, || (state(&id) == "running").then_some(()));
    let hostler = site.path("hostler");
    let attach = format!("setpriv --reuid=games --regid=games --clear-groups -- {hostler} --head {socket} attach {id}");
    let mut terminal = Command::new("script")
        .args(["-qec", &attach, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is installed");
    let mut keys = terminal.stdin.take().expect("piped");
    let mut screen = terminal.stdout.take().expect("piped");
    keys.write_all(b"hello\r").expect("the program reads its input");
    // The text appears twice: as the echo, and as the program's output.
    let mut seen = Vec::new();
    while text(&seen).matches("hello").count() < 2 {
        let mut more = [0; 256];
        let count = screen.read(&mut more).expect("the screen is readable");
        assert!(count > 0, "it ended with {}", text(&seen));
        seen.extend(&more[..count]);
    }
    keys.write_all(b"\x04").expect("the program reads its input");
    wait_until("the program has ended", 30, || (state(&id) == "completed").then_some(()));
    drop(keys);
    terminal.wait().expect("the process ends");
}

#[test]
fn remote_login_needs_a_registered_key() {
    let mut site = Site::start();
    // The job's user must exist on the node, so this is an account that every Debian has.
    let _ = site.start_agent();
    let (address, authority) = (site.address(), site.authority());
    let ada = key(&site.cluster.path("ada/.ssh"), "id_ed25519", &["-t", "ed25519"]);
    let ben = key(&site.cluster.path("ben/.ssh"), "id_rsa", &["-t", "rsa", "-b", "2048"]);
    let public = |key: &Path| key.with_added_extension("pub").display().to_string();
    site.admin(&["configure", "user", "add", "games", "--key", &public(&ada)]);
    site.admin(&["configure", "user", "add", "ben", "--uid", "4711", "--key", &public(&ben)]);

    // An unconfirmed cluster is not trusted, nor is one with another fingerprint.
    let said = text(&site.elsewhere("ada", &["login", &address, "--user", "games"]).stderr);
    assert!(said.contains("is not trusted") && said.contains(&authority), "{said}");
    let other = format!("{}{}", if authority.starts_with('0') { '1' } else { '0' }, &authority[1..]);
    let output = site.elsewhere("ada", &["login", &address, "--user", "games", "--authority", &other]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));

    // Another user's key, an unknown key and an unknown user give the same error.
    let login =
        |home: &str, user: &str| site.elsewhere(home, &["login", &address, "--user", user, "--authority", &authority]);
    let (not_hers, nobody) = (refused(&login("ben", "games")), refused(&login("ada", "nobody-at-all")));
    assert!(not_hers.contains("does not match any key that the cluster knows"), "{not_hers}");
    assert!(not_hers.contains("cannot log in as games"), "{not_hers}");
    assert_eq!(not_hers, nobody.replace("nobody-at-all", "games"));

    let said = text(&login("ada", "games").stderr);
    assert!(said.contains("as games with the role of a user"), "{said}");
    ok(&login("ben", "ben"));
    // The file with the token is private.
    let kept = site.cluster.path("ada/.config/hostler/logins");
    for file in fs::read_dir(&kept).expect("the path exists").flatten() {
        assert_eq!(file.metadata().expect("the file exists").permissions().mode() & 0o077, 0, "{:?}", file.path());
    }
    // Later commands need no question: the cluster is known, and the last login is the default.
    let output = site.elsewhere("ada", &["run", "-m", "16M", "--", "sh", "-c", "echo from elsewhere"]);
    assert_eq!(ok(&output), "from elsewhere");
    let id = ok(&site.elsewhere("ada", &["run", "--detach", "--hold", "-m", "16M", "--", "true"]));
    let said = refused(&site.elsewhere("ben", &["cancel", &id]));
    assert!(said.contains("belongs to games"), "{said}");
    ok(&site.elsewhere("ben", &["jobs"]));
    assert!(refused(&site.elsewhere("ada", &["configure", "user", "list"])).contains("only admins may do this"));
    site.admin(&["configure", "user", "role", "games", "admin"]);
    assert!(ok(&site.elsewhere("ada", &["configure", "user", "list"])).contains("4711"));

    // Logins survive a restart of the head. A logout revokes the token, so restoring its file does not help.
    let daemon = &mut site.daemons[0];
    daemon.kill().expect("the process is not reaped");
    daemon.wait().expect("the process is not reaped");
    site.start_head();
    let file = kept.join(format!("{}.json", address.replace(':', "_")));
    let before = fs::read(&file).expect("the login is stored");
    ok(&site.elsewhere("ada", &["cancel", &id]));
    ok(&site.elsewhere("ada", &["logout"]));
    let head = ["--head", &address, "jobs"];
    assert!(refused(&site.elsewhere("ada", &head)).contains("not logged in"));
    fs::write(&file, before).expect("the file is writable");
    assert!(refused(&site.elsewhere("ada", &head)).contains("unknown or revoked"));
    // Removing the user revokes the login.
    site.admin(&["configure", "user", "remove", "ben"]);
    assert!(refused(&site.elsewhere("ben", &head)).contains("its user was removed"));
    // A token of another cluster is not valid here.
    let theirs = Site::start();
    theirs.admin(&["configure", "user", "add", "ben", "--key", &public(&ben)]);
    let (there, whose) = (theirs.address(), theirs.authority());
    let login = site.elsewhere("ben", &["--head", &address, "login", &there, "--user", "ben", "--authority", &whose]);
    assert!(text(&login.stderr).contains("commands still use"), "{login:?}");
    let read = |address: &str| -> Value {
        let name = format!("ben/.config/hostler/logins/{}.json", address.replace(':', "_"));
        serde_json::from_slice(&fs::read(site.cluster.path(&name)).expect("the login is stored")).expect("JSON")
    };
    let mut mixed = read(&address);
    mixed["token"] = read(&there)["token"].clone();
    let name = format!("ben/.config/hostler/logins/{}.json", address.replace(':', "_"));
    site.cluster.write(&name, mixed.to_string());
    assert!(refused(&site.elsewhere("ben", &head)).contains("the token is unknown"));
}

/// A hostile head with its own certificate, which relays all requests to another cluster's head.
struct LoginRelay {
    address: String,
    /// All requests of its victims.
    heard: Arc<Mutex<Vec<u8>>>,
    _runtime: tokio::runtime::Runtime,
}

impl LoginRelay {
    /// Uses the certificate of the head in `directory`, and relays to `target`.
    #[expect(clippy::disallowed_methods, reason = "a server of the test")]
    fn start(directory: &Path, target: Endpoint) -> Self {
        let trust = directory.join("trust");
        let read = |name: &str| CertificateDer::from_pem_file(trust.join(name)).expect("a head has certificates");
        let chain = vec![read("server.pem"), read("ca.pem")];
        let key = PrivateKeyDer::from_pem_file(trust.join("server.key")).expect("a head has a key");
        let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("the key matches the certificate");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("the listener is bound").to_string();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&heard);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, target, all) = (acceptor.clone(), target.clone(), Arc::clone(&all));
                tokio::spawn(async move {
                    // Clients that only read the certificate disconnect.
                    let Ok(victim) = acceptor.accept(stream).await else { return };
                    let Ok(head) = target.connect().await else { return };
                    let (from_victim, to_victim) = tokio::io::split(victim);
                    let (from_head, to_head) = tokio::io::split(head);
                    let nobody = Arc::new(Mutex::new(Vec::new()));
                    tokio::join!(pass_on(from_victim, to_head, all), pass_on(from_head, to_victim, nobody));
                });
            }
        });
        Self { address, heard, _runtime: runtime }
    }

    fn heard(&self) -> String {
        text(&self.heard.lock().expect("the lock is not poisoned"))
    }
}

/// Copies a stream and records it.
async fn pass_on(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, copy: Arc<Mutex<Vec<u8>>>) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        copy.lock().expect("the lock is not poisoned").extend(&bytes[..length]);
        if to.write_all(&bytes[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

#[test]
fn head_that_relays_another_clusters_challenge_gets_no_signature() {
    let (victim, hostile) = (Site::start(), Site::start());
    let ada = key(&victim.cluster.path("ada/.ssh"), "id_ed25519", &["-t", "ed25519"]);
    let public = ada.with_added_extension("pub").display().to_string();
    victim.admin(&["configure", "user", "add", "ada", "--role", "admin", "--key", &public]);
    let target = Endpoint::remote_head(&victim.address(), victim.authority().parse().expect("a fingerprint"), None);
    let relay = LoginRelay::start(&hostile.cluster.path("head"), target);
    let authority = hostile.authority();
    let login = ["login", &relay.address, "--user", "ada", "--authority", &authority];
    let output = victim.elsewhere("ada", &login);
    let said = text(&output.stderr);
    assert!(relay.heard().contains("/login/challenge"), "it was asked for a challenge: {}", relay.heard());
    assert!(!relay.heard().contains("SSH SIGNATURE"), "a signature that logs in elsewhere was given away: {said}");
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains(&victim.authority()) && said.contains(&authority), "{said}");
    assert!(said.contains("nothing was signed"), "{said}");
    // A login at the cluster itself works with the same key.
    let (address, authority) = (victim.address(), victim.authority());
    ok(&victim.elsewhere("ada", &["login", &address, "--user", "ada", "--authority", &authority]));
}

#[test]
fn blocked_account_is_refused_everywhere_and_its_running_jobs_continue() {
    let mut site = Site::start();
    let (head, node) = (site.socket(), site.start_agent());
    let games = |socket: &str, arguments: &[&str]| site.as_user("games", socket, arguments);
    let state = |id: &str| -> Value { serde_json::from_str(&site.admin(&["job", id, "--json"])).expect("JSON") };
    let path = key(&site.cluster.path("ada/.ssh"), "id_ed25519", &["-t", "ed25519"]);
    let public = path.with_added_extension("pub").display().to_string();
    site.admin(&["configure", "user", "add", "games", "--key", &public]);
    site.admin(&["configure", "user", "quota", "games", "--memory", "64M"]);
    let (address, authority) = (site.address(), site.authority());
    let login = ["login", &address, "--user", "games", "--authority", &authority];
    ok(&site.elsewhere("ada", &login));
    let detached = ["run", "--detach", "-c", "2", "-m", "16M", "--", "sleep"];
    let running = ok(&games(&node, &[&detached[..], &["600"]].concat()));
    wait_until("the job to run", 30, || (state(&running)["state"] == "running").then_some(()));
    let waiting = ok(&games(&head, &[&detached[..], &["0"]].concat()));

    let admin = |arguments: &[&str]| {
        let output =
            site.cluster.command(&[&["--head", &head], arguments].concat()).output().expect("the program starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    // A removed user can still submit jobs under the old quota, and the command says so.
    let said = admin(&["configure", "user", "remove", "games"]);
    assert!(said.contains("may still submit jobs") && said.contains("hostler configure user block games"), "{said}");
    let small = ["run", "--detach", "--hold", "-m", "16M", "--", "true"];
    ok(&games(&head, &small));
    let large = games(&head, &["run", "--detach", "-m", "128M", "--", "true"]);
    assert!(text(&large.stderr).contains("games may have at most 64M of memory"), "{}", text(&large.stderr));
    admin(&["configure", "user", "add", "games", "--key", &public]);
    ok(&site.elsewhere("ada", &login));

    let said = admin(&["configure", "user", "block", "games", "--reason", "see the desk"]);
    assert!(said.contains("games (uid 5) is blocked") && said.contains("running jobs continue"), "{said}");
    let why = "games is blocked on this cluster: see the desk";
    for socket in [&head, &node] {
        for command in [
            &["jobs"][..],
            &["cancel", &running],
            &["logs", &running],
            &["attach", &running],
            &["forward", &running, "8888", "--stdio"],
            &["requeue", &running],
            &["update", &waiting, "--name", "other"],
        ] {
            let said = refused(&games(socket, command));
            assert!(said.contains(why), "{socket} {command:?}: {said}");
        }
        assert!(text(&games(socket, &small).stderr).contains(why));
    }
    let kept = refused(&site.elsewhere("ada", &["--head", &address, "jobs"]));
    assert!(kept.contains(why), "a token from before: {kept}");
    let fresh = refused(&site.elsewhere("ada", &login));
    assert!(fresh.contains(why), "a new login: {fresh}");
    let list = site.admin(&["configure", "user", "list"]);
    assert!(list.contains("blocked by root: see the desk"), "{list}");

    assert_eq!(state(&running)["state"], "running", "running jobs continue");
    site.admin(&["cancel", &running]);
    wait_until("the job to be cancelled", 30, || (state(&running)["state"] == "cancelled").then_some(()));
    let explained = site.admin(&["why", &waiting]);
    assert!(explained.contains(why) && explained.contains("unblock games"), "{explained}");
    assert_eq!(state(&waiting)["state"], "pending", "waiting jobs do not start");
    admin(&["configure", "user", "unblock", "games"]);
    wait_until("the waiting job to complete", 30, || (state(&waiting)["state"] == "completed").then_some(()));
    ok(&games(&node, &["jobs"]));
}

#[test]
fn other_users_cannot_see_command_lines_and_error_messages() {
    let mut site = Site::start();
    let socket = site.start_agent();
    let games = |arguments: &[&str]| site.as_user("games", &socket, arguments);
    games(&["run", "-m", "16M", "--", "sh", "-c", "exit 3", "--token=hunter2"]);
    let script = site.cluster.write("project/start", "#!/no/such/hunter2\n");
    fs::set_permissions(script, Permissions::from_mode(0o755)).expect("the test owns it");
    let broken = ok(&games(&["submit", &site.path("project"), "start", "-m", "64M"]));
    games(&["wait", &broken]);
    for arguments in [
        &["job", "1", "--json"][..],
        &["job", "1"],
        &["job", &broken, "--json"],
        &["job", &broken],
        &["jobs", "--all", "--json"],
        &["why", &broken],
        &["node", "show", "n1"],
    ] {
        let seen = ok(&site.as_user("mail", &socket, arguments));
        assert!(!seen.contains("hunter2"), "{arguments:?}: {seen}");
    }
    let theirs: Value = serde_json::from_str(&ok(&games(&["job", &broken, "--json"]))).expect("JSON");
    assert!(theirs["tasks_shown"][0]["message"].as_str().is_some_and(|said| said.contains("hunter2")), "{theirs}");
    let others: Value =
        serde_json::from_str(&ok(&site.as_user("mail", &socket, &["job", &broken, "--json"]))).expect("JSON");
    assert_eq!((&others["state"], &others["command"]), (&"failed".into(), &"".into()), "{others}");
    assert_eq!(others["tasks_shown"][0]["message"], "only the job's user and operators can see the reason");
    // Operators see everything.
    assert!(site.admin(&["job", "1"]).contains("--token=hunter2"));
}

#[test]
fn only_named_variables_are_passed_on() {
    let mut site = Site::start();
    let socket = site.start_agent();
    let run = |arguments: &[&str]| {
        let hostler = site.path("hostler");
        let output = Command::new("setpriv")
            .args(["--reuid=games", "--regid=games", "--clear-groups", "--", &hostler, "--head", &socket])
            .args([&["run", "-m", "16M"], arguments, &["--", "env"]].concat())
            .env_clear()
            .envs([
                ("PATH", "/usr/bin:/bin"),
                ("HOME", &*site.path("home-games")),
                ("KEPT", "a"),
                ("API_TOKEN", "hunter2"),
            ])
            .current_dir("/")
            .output()
            .expect("setpriv is installed");
        ok(&output)
    };
    site.as_user("games", &socket, &["jobs"]);
    let has = |seen: &str, variable: &str| seen.lines().any(|line| line.starts_with(variable));
    let all = run(&[]);
    assert!(has(&all, "API_TOKEN=hunter2") && has(&all, "KEPT=a"), "{all}");
    let some = run(&["--env-only", "KEPT,HOME", "--env", "MORE=b"]);
    assert!(!has(&some, "API_TOKEN") && has(&some, "KEPT=a") && has(&some, "MORE=b"), "{some}");
    assert!(has(&some, "PATH=") && has(&some, "HOSTLER_JOB_ID="), "what a login and Hostler set: {some}");
    site.cluster.write("home-games/.config/hostler/config.toml", "env_only = [\"KEPT\"]\n");
    let by_file = run(&[]);
    assert!(!has(&by_file, "API_TOKEN") && has(&by_file, "KEPT=a"), "{by_file}");
    assert!(has(&run(&["--env-only", "*"]), "API_TOKEN=hunter2"), "the flag comes first");
}

#[test]
fn login_code_is_valid_once_and_not_for_nodes() {
    let site = Site::start();
    site.admin(&["configure", "user", "add", "ada"]);
    let code = site.admin(&["configure", "user", "invite", "ada"]);
    fs::create_dir_all(site.cluster.path("ada")).expect("a directory can be made");
    let damaged = format!("{}{}", &code[..code.len() - 1], if code.ends_with('a') { 'b' } else { 'a' });
    let output = site.with_code("ada", &["login"], &damaged);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains(&damaged[20..]), "the secret is not repeated");
    let said = text(&site.with_code("ada", &["login"], &code).stderr);
    assert!(said.contains("as ada with the role of a user"), "{said}");
    assert!(refused(&site.with_code("ada", &["login"], &code)).contains("was used already"));
    assert_eq!(ok(&site.elsewhere("ada", &["jobs", "--quiet"])), "");
    // A code does not replace the trusted authority of its address, unless --authority is given.
    let kept = format!("ada/.config/hostler/logins/{}.json", site.address().replace(':', "_"));
    let mut login: Value = serde_json::from_slice(&fs::read(site.cluster.path(&kept)).expect("kept")).expect("JSON");
    login["authority"] = "1".repeat(64).into();
    site.cluster.write(&kept, login.to_string());
    let another = site.admin(&["configure", "user", "invite", "ada"]);
    let output = site.with_code("ada", &["login", "-"], &another);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    ok(&site.with_code("ada", &["login", "--authority", &site.authority()], &another));
    let file = site.cluster.write("code", code).display().to_string();
    let name = ["agent", "run", "--name", "n1", "--cpus", "0", "--memory", "256M"];
    let join = site.cluster.fails(&[&name[..], &["--directory", &site.path("agent"), "--join-file", &file]].concat());
    assert!(join.contains("join code"), "{join}");
}

#[test]
fn code_on_the_command_line_is_refused_and_revoked() {
    let site = Site::start();
    site.admin(&["configure", "user", "add", "ada"]);
    let fails = |output: Output, code: &str, hint: &str| {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("where all users of this machine can read and use it") && said.contains(hint), "{said}");
        assert!(!said.contains(&code[20..]), "the code is not repeated: {said}");
    };
    let login = site.admin(&["configure", "user", "invite", "ada"]);
    fails(site.elsewhere("ada", &["login", &login]), &login, "the head has revoked the code");
    assert!(!site.cluster.path("ada/.config/hostler/logins").exists(), "nobody is logged in");
    assert!(refused(&site.with_code("ada", &["login"], &login)).contains("was used already"));
    fails(site.elsewhere("ada", &["login", &login]), &login, "tell an admin that somebody else has");
    let join = site.invite_node("n1");
    fails(site.elsewhere("ada", &["agent", "join", &join]), &join, "the head has revoked the code");
    let again = ["agent", "join", "--directory", &site.path("agent")];
    assert!(refused(&site.with_code("ada", &again, &join)).contains("the join code is not valid"));
}

#[test]
fn roster_is_imported_completely_or_not_at_all() {
    let site = Site::start();
    let key = key(&site.cluster.path("keys"), "k", &["-t", "ed25519"]);
    let public = fs::read_to_string(key.with_added_extension("pub")).expect("the path exists");
    let public = public.trim();
    let roster = |text: String| site.cluster.write("roster.csv", text).display().to_string();
    let head = site.socket();
    let bad = roster(format!("name,uid,role,groups,ssh key\nada,2000,,,{public}\nBen,2001\ncy,12\n"));
    let said = site.cluster.fails(&["--head", &head, "configure", "user", "import", &bad]);
    assert!(said.contains("line 4:") && said.contains("nothing was changed") && !said.contains("line 2"), "{said}");
    let bad = roster("name,uid,ssh key\nada,2000,ssh-ed25519 rubbish\nben,2001\n".to_owned());
    let said = site.cluster.fails(&["--head", &head, "configure", "user", "import", &bad]);
    assert!(said.contains("of ada is not an SSH public key") && said.contains("see line 2"), "{said}");
    assert_eq!(site.admin(&["configure", "user", "list", "--quiet"]), "");
    let good = roster(format!("name,uid,role,groups,ssh key\nada,2000,operator,lab;a1,{public}\nben,2001,,lab,\n"));
    site.admin(&["configure", "user", "import", &good]);
    let users: Value = serde_json::from_str(&site.admin(&["configure", "user", "list", "--json"])).expect("JSON");
    assert_eq!(
        (&users[0]["name"], &users[0]["uid"], &users[0]["role"]),
        (&"ada".into(), &2000.into(), &"operator".into())
    );
    assert_eq!(users[0]["keys"].as_array().map(Vec::len), Some(1));
    assert_eq!(users[1]["groups"], serde_json::json!(["lab"]));
}
