//! Images in registries: what the agent gives to the process that asks a registry, and what it gets back.
//!
//! For root's agent, the process has a uid of its own, so that the user can neither change its answers nor read the
//! tokens that it gets. The agent reads the user's login data with the user's rights, and passes it through memory.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hostler_image::{ImageError, LayerOrder, MAX_JSON_BYTES, Remote, read_small};
use hostler_model::{DOCKER_HUB, RegistryImage, escaped};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::geteuid;
use serde::Deserialize;
use serde_json::Value;

use crate::mutex::lock;
use crate::provision::environment::{Ended, Runner, Step};
use crate::provision::images::registry::{Description, Login, Order, Said, Want};
use crate::provision::images::{Failure, Wanted, unpacker, wait_for};
use crate::rights::act_as;

/// The table `images` of `agent.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSettings {
    /// Registries without encryption, as hosts with ports.
    #[serde(default)]
    pub plain_http: Vec<String>,
    /// Registries that jobs may use, beside those in `plain_http`. Without a list, all but those on the node and its network.
    #[serde(default)]
    pub registries: Option<Vec<String>>,
    /// Directories of the machine that all users may take as images (`dir:`). Only root may change them.
    #[serde(default)]
    pub directories: Vec<String>,
}

impl ImageSettings {
    /// Refuses registries that the node's admin does not allow, as far as their names say so.
    fn allow(&self, host: &str) -> Result<(), Failure> {
        let listed = self.listed();
        if listed.iter().any(|it| it.eq_ignore_ascii_case(host)) {
            return Ok(());
        }
        let why = match &self.registries {
            Some(all) if all.is_empty() => "this node pulls no images from there".to_owned(),
            Some(all) => format!("this node pulls images from {} only", all.join(", ")),
            None if is_loopback(host) => {
                "any user of the node could be listening there; the node's admin can list it in `[images] plain_http`"
                    .to_owned()
            }
            None => return Ok(()),
        };
        Err(Failure::Unpack(format!("the registry {host} is not allowed: {why}")))
    }

    /// Registries that may be on this node or on a private network.
    fn listed(&self) -> Vec<String> {
        self.plain_http.iter().chain(self.registries.iter().flatten()).cloned().collect()
    }
}

/// Variables of the agent that name the machine's certificate authorities.
const OF_AUTHORITIES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// An image in a registry, with what its user has for the registry.
pub(crate) struct Pull<'a> {
    image: RegistryImage<'a>,
    settings: &'a ImageSettings,
    login: Option<Login>,
    login_note: String,
}

/// What a registry was asked for: the uid, the image, and the login data. Others may get another answer.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    uid: Option<u32>,
    name: String,
    reference: String,
    login: Option<Login>,
}

/// Cache of the answers of registries, by user and image.
pub(crate) type Answers = Mutex<HashMap<Question, Arc<Mutex<Known>>>>;

/// The cached answer of a registry about an image.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The last description, and when the agent began to ask for it.
    description: Option<(Instant, Description)>,
    /// Time and error of the last failed request.
    failed: Option<(Instant, String)>,
}

impl Known {
    /// Makes all entries older by this time.
    #[cfg(test)]
    pub(crate) fn age(&mut self, by: Duration) {
        if let Some((asked, _)) = &mut self.description {
            *asked = asked.checked_sub(by).expect("the machine runs for longer");
        }
    }
}

/// Time in which an answer is used for other jobs without asking again.
const FRESH: Duration = Duration::from_secs(10);

/// Time in which an answer is used while the registry does not answer, and in which that of a digest is used.
const KEPT: Duration = Duration::from_secs(600);

/// Maximum number of kept answers of all users.
const MAX_ANSWERS: usize = 256;

/// Maximum size of a kept answer in bytes. The registry is asked again for larger ones, which are rare.
const MAX_ANSWER_BYTES: usize = 128 << 10;

impl<'a> Pull<'a> {
    /// Reads the login data of the user, if the node has any.
    ///
    /// # Errors
    /// If the node does not allow the registry, or if a file with login data has an unexpected form.
    pub(crate) fn new(
        image: RegistryImage<'a>,
        settings: &'a ImageSettings,
        wanted: &Wanted<'_>,
    ) -> Result<Self, Failure> {
        settings.allow(image.host)?;
        let (login, login_note) = match wanted.has_login {
            true => act_as(wanted.user, || find_login(&login_files(wanted), image.host, image.repository))??,
            false => (None, "; jobs of other users have no login data on a node whose agent is not root".to_owned()),
        };
        Ok(Self { image, settings, login, login_note })
    }

    /// Asks the registry for the image, unless another job of the user has just done so. Returns the digest of the manifest too.
    ///
    /// # Errors
    /// If the registry has no such image for the user, or if the job ends meanwhile.
    pub(crate) fn describe(
        &self,
        answers: &Answers,
        wanted: &Wanted<'_>,
        runner: &dyn Runner,
        log: &mut dyn FnMut(&[u8]),
    ) -> Result<(String, Remote), Failure> {
        let began = Instant::now();
        let reference = self.image.digest.unwrap_or(self.image.tag).to_owned();
        let question = Question {
            uid: wanted.user.map(|user| user.uid),
            name: format!("{}/{}", self.image.host, self.image.repository),
            reference: reference.clone(),
            login: self.login.clone(),
        };
        let own = {
            let mut answers = lock(answers);
            answers.retain(|_, answer| {
                let is_asked = Arc::strong_count(answer) > 1;
                is_asked || lock(answer).description.as_ref().is_some_and(|(asked, _)| asked.elapsed() < KEPT)
            });
            if answers.len() >= MAX_ANSWERS {
                answers.retain(|_, answer| Arc::strong_count(answer) > 1);
            }
            Arc::clone(answers.entry(question).or_default())
        };
        let mut known = wait_for(&own, runner)?;
        let lasts = if self.image.digest.is_some() { KEPT } else { FRESH };
        let last = known.description.take().filter(|(asked, _)| asked.elapsed() < KEPT);
        // Another job has asked while this one waited.
        let failed = known.failed.take().filter(|(asked, _)| *asked >= began);
        let asked = failed.as_ref().map_or_else(Instant::now, |(asked, _)| *asked);
        let (since, description) = match (last, failed) {
            (Some(last), None) if last.0 >= began || last.0.elapsed() < lasts => last,
            (None, Some((_, why))) => {
                known.failed = Some((asked, why.clone()));
                return Err(Failure::Unpack(why));
            }
            (last, failed) => {
                let named = last.as_ref().map(|(_, last)| last.named.clone());
                let said = match failed {
                    Some((_, why)) => Ok(Said::Away(why)),
                    None => self.ask(reference, named, wanted, runner),
                };
                match (said, last) {
                    (Ok(Said::New(description)), _) => (asked, description),
                    (Ok(Said::Same), Some((_, description))) => (asked, description),
                    (Ok(Said::Away(why)), Some(last)) => {
                        let secs = last.0.elapsed().as_secs();
                        let note = format!("hostler: {}; using its answer of {secs} s ago\n", escaped(&why));
                        log(note.as_bytes());
                        known.failed = Some((asked, why));
                        last
                    }
                    (Ok(_), None) => return Err(unexpected()),
                    (Err(failure), _) => {
                        if let Failure::Unpack(why) = &failure {
                            known.failed = Some((asked, why.clone()));
                        }
                        return Err(failure);
                    }
                }
            }
        };
        if description.manifest.len() + description.config.len() <= MAX_ANSWER_BYTES {
            known.description = Some((since, description.clone()));
        }
        drop(known);
        self.read(&description)
    }

    fn read(&self, said: &Description) -> Result<(String, Remote), Failure> {
        let name = format!("{}/{}@{}", self.image.host, self.image.repository, said.digest);
        let remote = Remote::parse(&name, said.manifest.as_bytes(), said.config.as_bytes())?;
        Ok((name, remote))
    }

    fn ask(
        &self,
        reference: String,
        known: Option<String>,
        wanted: &Wanted<'_>,
        runner: &dyn Runner,
    ) -> Result<Said, Failure> {
        // More than the documents themselves, since JSON inside of JSON has more backslashes.
        let most = 5 * MAX_JSON_BYTES as usize;
        let output = self.run(Want::Description { reference, known }, most, wanted, runner)?;
        serde_json::from_slice(&output).map_err(|_| unexpected())
    }

    /// Downloads a layer into a file, which the process can write to.
    ///
    /// # Errors
    /// If the registry does not have what its manifest says, or if the job ends meanwhile.
    pub(crate) fn layer(
        &self,
        order: &LayerOrder,
        path: &Path,
        wanted: &Wanted<'_>,
        runner: &dyn Runner,
    ) -> Result<(), Failure> {
        let digest = order.digest.expect("manifests name layers by their digests").to_string();
        let want = Want::Layer { digest, length: order.length, path: path.display().to_string() };
        self.run(want, 0, wanted, runner).map(drop)
    }

    /// A name for a layer of this repository that no other layer has. A user who may read the repository may read the layer.
    pub(crate) fn source(&self, order: &LayerOrder) -> String {
        format!("registry {}/{} {}", self.image.host, self.image.repository, order.diff_id)
    }

    /// Runs the process that asks the registry. Returns its output.
    fn run(&self, want: Want, most: usize, wanted: &Wanted<'_>, runner: &dyn Runner) -> Result<Vec<u8>, Failure> {
        const MOST_TEXT: usize = 4096;
        let order = Order {
            host: self.image.host.to_owned(),
            repository: self.image.repository.to_owned(),
            plain: self.settings.plain_http.clone(),
            listed: self.settings.listed(),
            login: self.login.clone(),
            login_note: self.login_note.clone(),
            want,
        };
        let mut memory = File::from(memfd_create(c"order", MFdFlags::MFD_CLOEXEC).map_err(io::Error::from)?);
        serde_json::to_writer(&memory, &order).map_err(io::Error::from)?;
        memory.flush()?;
        memory.seek(SeekFrom::Start(0))?;
        let of_authorities = OF_AUTHORITIES.iter().filter_map(|name| Some(((*name).into(), std::env::var_os(name)?)));
        let step = Step {
            argv: [wanted.program, "fetch-image"].into_iter().map(Into::into).collect(),
            env: of_authorities.collect(),
            cwd: "/".into(),
            credentials: unpacker(),
            input: Some(Arc::new(memory)),
            ..Step::default()
        };
        let mut output = Vec::new();
        let ended = runner.run(&step, &mut |bytes| {
            let room = most.max(MOST_TEXT).saturating_sub(output.len());
            output.extend_from_slice(&bytes[..bytes.len().min(room)]);
        })?;
        let text = || {
            let start = &output[..output.len().min(MOST_TEXT)];
            escaped(String::from_utf8_lossy(start).trim().trim_start_matches("error: ")).to_string()
        };
        match ended {
            Ended::Exited(0) => Ok(output),
            Ended::Exited(_) => Err(Failure::Unpack(format!("cannot pull the image: {}", text()))),
            Ended::NotStarted(why) => Err(Failure::Unpack(format!(
                "cannot pull the image: {why}; all users of the node must be able to execute {}",
                wanted.program
            ))),
            other => Err(Failure::Unpack(format!("cannot pull the image: the process {other}"))),
        }
    }
}

fn unexpected() -> Failure {
    Failure::Unpack("the process that asks registries has printed something unexpected".to_owned())
}

/// Whether a host of a reference is the node itself.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The files in which programs such as `podman login` and `docker login` leave login data, in the order of their search.
fn login_files(wanted: &Wanted<'_>) -> Vec<PathBuf> {
    let uid = wanted.user.map_or_else(|| geteuid().as_raw(), |user| user.uid);
    let home = wanted.home.map(Path::to_owned);
    let home = home.or_else(|| std::env::var_os("HOME").filter(|_| wanted.user.is_none()).map(PathBuf::from));
    let below = |path: &str| home.as_ref().map(|home| home.join(path));
    [
        Some(format!("/run/user/{uid}/containers/auth.json").into()),
        below(".config/containers/auth.json"),
        below(".docker/config.json"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Finds login data for a repository. Returns a note for the case that the registry demands other login data, too.
fn find_login(files: &[PathBuf], host: &str, repository: &str) -> Result<(Option<Login>, String), Failure> {
    let mut has_helper = false;
    for path in files {
        let text = match read_small(path) {
            Ok(text) => text,
            // A missing file, or one in a directory that is closed to the user.
            Err(ImageError::Read { error, .. })
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) =>
            {
                continue;
            }
            Err(ImageError::Read { error, .. }) if error.kind() == io::ErrorKind::NotADirectory => continue,
            Err(error) => return Err(error.into()),
        };
        // The error of the parser could contain a password.
        let all: Value =
            serde_json::from_slice(&text).map_err(|_| Failure::Unpack(format!("{} is not JSON", path.display())))?;
        if let Some(login) = all.get("auths").and_then(|auths| login_of(auths, host, repository)) {
            return Ok((Some(login), format!("; the login data of {} were used", path.display())));
        }
        let helpers = all.get("credHelpers").and_then(|helpers| helpers.get(host));
        has_helper |= helpers.or_else(|| all.get("credsStore")).is_some();
    }
    let note = match has_helper {
        true => {
            "; your login data are in a credential helper, which Hostler does not run; log in on the node with `podman login --authfile ~/.config/containers/auth.json`"
        }
        false => "; log in on the node with `docker login` or `podman login --authfile ~/.config/containers/auth.json`",
    };
    Ok((None, note.to_owned()))
}

/// The entry of `auths` for the repository, its closest parent, or the host.
fn login_of(auths: &Value, host: &str, repository: &str) -> Option<Login> {
    let entries = auths.as_object()?;
    let whole = format!("{host}/{repository}");
    let mut name = whole.as_str();
    loop {
        let found = entries.iter().filter(|(key, _)| plain_key(key) == name);
        if let Some(login) = found.filter_map(|(_, entry)| login_in(entry)).next() {
            return Some(login);
        }
        name = name.rsplit_once('/')?.0;
    }
}

/// The host or repository that a key of `auths` names. `docker login` writes some with a scheme and a path of the API.
fn plain_key(key: &str) -> &str {
    let bare = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://"));
    let name = bare.map_or(key, |rest| rest.split('/').next().unwrap_or_default());
    match name {
        "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB,
        _ => name,
    }
}

fn login_in(entry: &Value) -> Option<Login> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(token) = text("identitytoken") {
        return Some(Login::Refresh(token.to_owned()));
    }
    let decoded = String::from_utf8(STANDARD.decode(text("auth")?).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some(Login::Password { user: user.to_owned(), password: password.trim_end_matches('\0').to_owned() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hostler_model::{ImageRef, ImageSource};

    use super::*;

    #[test]
    fn login_data_of_the_closest_name_are_used() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("writable");
            path
        };
        let auth = |text: &str| STANDARD.encode(text);
        let first = file(
            "auth.json",
            &format!(
                r#"{{"auths":{{"a.example":{{"auth":"{}"}},"a.example/team":{{"auth":"{}"}},"b.example":{{}}}}}}"#,
                auth("host:p:w"),
                auth("team:x"),
            ),
        );
        let second = file(
            "config.json",
            &format!(
                r#"{{"auths":{{"https://index.docker.io/v1/":{{"auth":"{}"}},"https://c.example:5000":{{"identitytoken":"t","auth":"{}"}}}},
                    "credHelpers":{{"d.example":"pass"}}}}"#,
                auth("hub:x"),
                auth("<token>:"),
            ),
        );
        let files = [directory.path().join("missing"), first, second];
        let user = |host: &str, repository: &str| match find_login(&files, host, repository).expect("readable").0 {
            Some(Login::Password { user, password }) => format!("{user} {password}"),
            Some(Login::Refresh(token)) => format!("token {token}"),
            None => "none".to_owned(),
        };
        assert_eq!(user("a.example", "other/app"), "host p:w");
        assert_eq!(user("a.example", "team/app"), "team x");
        assert_eq!(user("a.example", "teams/app"), "host p:w");
        assert_eq!(user(DOCKER_HUB, "debian"), "hub x");
        assert_eq!(user("c.example:5000", "app"), "token t");
        assert_eq!((user("b.example", "app"), user("c.example", "app")), ("none".to_owned(), "none".to_owned()));
        let note = |host: &str| find_login(&files, host, "app").expect("readable").1;
        assert!(note("d.example").contains("credential helper") && !note("e.example").contains("credential helper"));
        let damaged = file("damaged", "{\"auths\": secret");
        let Err(Failure::Unpack(why)) = find_login(&[damaged], "a", "b") else { panic!("it is no JSON") };
        assert!(why.ends_with("damaged is not JSON"), "{why}");
    }

    #[test]
    fn login_data_of_the_agents_user_are_not_used_for_jobs_of_others() {
        let home = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(home.path().join(".docker")).expect("writable");
        let auths = format!(r#"{{"auths":{{"a.example":{{"auth":"{}"}}}}}}"#, STANDARD.encode("ada:secret"));
        fs::write(home.path().join(".docker/config.json"), auths).expect("writable");
        let image: ImageRef = "docker://a.example/team/app:1".parse().expect("an image");
        let ImageSource::Registry(name) = image.source() else { panic!("it is in a registry") };
        let settings = ImageSettings::default();
        for has_login in [true, false] {
            let (folder, home, program) = (home.path(), Some(home.path()), "hostler");
            let wanted = Wanted { image: &image, run: "1", folder, user: None, home, has_login, own: None, program };
            let pull = Pull::new(name, &settings, &wanted).expect("allowed");
            assert_eq!(pull.login.is_some(), has_login);
        }
    }

    #[test]
    fn registries_beyond_the_list_are_refused_before_any_connection() {
        let list = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let allows = |registries: Option<&[&str]>, host: &str| {
            let (plain_http, registries) = (list(&["registry.lan:5000"]), registries.map(list));
            let settings = ImageSettings { plain_http, registries, ..ImageSettings::default() };
            settings.allow(host).is_ok()
        };
        for (registries, host, expected) in [
            (None, "docker.io", true),
            (None, "registry.lan:5000", true),
            (None, "localhost:5000", false),
            (Some(&["localhost:5000", "GHCR.io"][..]), "localhost:5000", true),
            (Some(&["localhost:5000", "GHCR.io"]), "ghcr.io", true),
            (Some(&["ghcr.io"]), "docker.io", false),
            (Some(&["ghcr.io"]), "ghcr.io:444", false),
            (Some(&[]), "docker.io", false),
            (Some(&[]), "registry.lan:5000", true),
        ] {
            assert_eq!(allows(registries, host), expected, "{registries:?} {host}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example", "128.0.0.1", "[::2]:5000", "registry.example:127", "0.0.0.0"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
