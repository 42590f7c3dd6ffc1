//! Sign-in with OpenID Connect at a real provider, and attacks on it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hostler_testkit::wait_until;
use ring::{digest, hmac};
use serde_json::{Value, json};

use crate::http::{Answer, Ask};
use crate::provider::{CLIENT, Plan, Provider, SECRET, Sign, fields};
use crate::site::{Site, free_port};

/// A site with a provider, and the users `ada` and `ben`.
struct Scene {
    site: Site,
    provider: Provider,
    port: u16,
    host: String,
}

impl Scene {
    fn set() -> Self {
        let port = free_port();
        let site = Site::start(&["--http", &format!("127.0.0.1:{port}")]);
        for user in ["ada", "ben"] {
            site.admin(&["configure", "user", "add", user]);
        }
        let provider = Provider::start(site.cluster.home());
        let scene = Self { site, provider, port, host: format!("127.0.0.1:{port}") };
        scene.configure("ada-1 = \"ada\"");
        wait_until("the sign-in page to offer the provider", 30, || {
            scene.get("/sign-in", "").body.contains("Sign in with Example Lab").then_some(())
        });
        scene
    }

    /// Writes `openid.toml` with these users.
    fn configure(&self, users: &str) {
        let Provider { issuer, ca, .. } = &self.provider;
        let text = format!(
            "issuer = \"{issuer}\"\nclient_id = \"{CLIENT}\"\nclient_secret = \"{SECRET}\"\nname = \"Example Lab\"\n\
             ca = \"{ca}\"\n[users.\"{issuer}\"]\n{users}\n"
        );
        let path = self.site.cluster.path("head/openid.toml.new");
        fs::write(&path, text).expect("a file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("permitted");
        fs::rename(path, self.site.cluster.path("head/openid.toml")).expect("replaced");
    }

    fn get(&self, path: &str, cookie: &str) -> Answer {
        Ask::get(path, &self.host).with("cookie", cookie).send(self.port)
    }

    /// Follows the link of the sign-in page. Returns the link to the provider, and the cookie.
    fn begin(&self, next: &str) -> (String, String) {
        let answer = self.get(&format!("/sign-in/openid?next={next}"), "none=1");
        assert_eq!(answer.status, 303, "{answer:?}");
        let set = answer.header("set-cookie").expect("a cookie");
        assert!(set.contains("; HttpOnly; SameSite=Lax; Path=/; Max-Age=600"), "{set}");
        (answer.header("location").expect("a link").to_owned(), answer.cookie())
    }

    /// Returns the page to which the provider sends the browser back, and the cookie.
    fn approved(&self, next: &str) -> (String, String) {
        let (link, cookie) = self.begin(next);
        let back = self.provider.approve(&link);
        let path = back.strip_prefix(&format!("http://{}", self.host)).unwrap_or_else(|| panic!("{back}"));
        (path.to_owned(), cookie)
    }

    fn sign_in(&self, next: &str) -> Answer {
        let (path, cookie) = self.approved(next);
        self.get(&path, &cookie)
    }

    /// Checks that a sign-in fails without a session, and that its page says `why`.
    fn fails(&self, answer: &Answer, status: u16, why: &str) {
        assert!(answer.status == status && answer.body.contains(why), "{why}: {answer:?}");
        let session = format!("set-cookie: hostler-{}=", self.port);
        assert!(!answer.head.contains(&session), "{answer:?}");
        assert!(answer.body.contains("Sign in again"), "{answer:?}");
    }
}

/// The session in the answer to a sign-in.
fn session(answer: &Answer, port: u16) -> String {
    let start = format!("set-cookie: hostler-{port}=");
    let line = answer.head.lines().find_map(|line| line.strip_prefix(&start));
    let line = line.unwrap_or_else(|| panic!("no session in {answer:?}"));
    assert!(line.contains("; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200"), "{line}");
    format!("hostler-{port}={}", line.split(';').next().expect("split has a first part"))
}

#[test]
fn browser_signs_in_with_openid_connect() {
    let scene = Scene::set();
    let port = scene.port;
    // The way there is a link, and the way back answers with a page, because redirects lose the cookie.
    let page = scene.get("/jobs", "none=1");
    assert!(page.status == 401 && page.body.contains(r#"href="/sign-in/openid?next=%2Fjobs""#), "{page:?}");
    let answer = scene.sign_in("%2Fjobs%3Fstate%3Dfailed");
    assert!(answer.status == 200 && answer.body.contains(r#"content="0;url=/jobs?state=failed""#), "{answer:?}");
    let forgotten = format!("set-cookie: hostler-{port}-openid=; HttpOnly; SameSite=Lax; Path=/; Max-Age=0");
    assert!(answer.head.contains(&forgotten), "{answer:?}");
    let first = session(&answer, port);
    let page = scene.get("/", &first);
    assert!(page.status == 200 && page.body.contains("ada (user)"), "{page:?}");

    // Another sign-in in the same browser ends the first session. Browsers send its cookie only after a page here.
    let (path, cookie) = scene.approved("/");
    let from_provider = Ask::get(&path, &scene.host)
        .with("cookie", &cookie)
        .with("sec-fetch-site", "cross-site")
        .with("sec-fetch-mode", "navigate")
        .with("sec-fetch-dest", "document");
    let landing = from_provider.send(port);
    let again = format!(r#"content="0;url={}""#, path.replace('&', "&#38;"));
    assert!(landing.status == 200 && landing.body.contains(&again), "{landing:?}");
    assert!(landing.header("set-cookie").is_none(), "{landing:?}");
    let second = session(&scene.get(&path, &format!("{first}; {cookie}")), port);
    assert_eq!((scene.get("/", &first).status, scene.get("/", &second).status), (401, 200));

    // The provider renews its keys, and signs with the other algorithm. The head reads the keys once more.
    let reads = scene.provider.key_reads();
    scene.provider.plan(Plan { sign: Sign::Es256, key_name: "k2".to_owned(), ..Plan::default() });
    session(&scene.sign_in("/"), port);
    session(&scene.sign_in("/"), port);
    assert_eq!(scene.provider.key_reads(), reads + 1);
    scene.provider.plan(Plan::default());

    // Only pages here follow.
    for next in ["//evil.example", "https%3A%2F%2Fevil.example", "%2F%5Cevil.example", "%2Fsign-in"] {
        let answer = scene.sign_in(next);
        assert!(answer.status == 200 && answer.body.contains(r#"content="0;url=/""#), "{next}: {answer:?}");
    }
    // The address at the provider does not depend on the header Host. A browser at another name moves there first.
    let other = Ask::get("/sign-in/openid?next=/jobs", &format!("localhost:{port}")).send(port);
    let there = format!("http://127.0.0.1:{port}/sign-in/openid?next=%2Fjobs");
    assert_eq!((other.status, other.header("location")), (303, Some(there.as_str())), "{other:?}");
    assert!(other.header("set-cookie").is_none(), "{other:?}");
    let evil = Ask::get("/sign-in/openid", &format!("evil.example:{port}")).send(port);
    assert_eq!(evil.status, 403, "{evil:?}");

    let log: Vec<Value> = serde_json::from_str(&scene.site.admin(&["configure", "audit", "--json"])).expect("JSON");
    assert!(log.iter().any(|entry| entry["about"] == "ada logged in with OpenID Connect"), "{log:?}");
    let log = fs::read_to_string(scene.site.cluster.path("state/0.log")).expect("the head's log");
    assert!(!log.contains(SECRET) && !log.contains("code-0"), "{log}");
}

#[test]
fn subject_decides_who_signs_in() {
    let scene = Scene::set();
    // Neither name nor mail address counts: the provider calls everybody root.
    scene.provider.plan(Plan { claims: json!({ "sub": "ben\"1<b>" }), ..Plan::default() });
    let answer = scene.sign_in("/");
    scene.fails(&answer, 403, "to no user of this cluster");
    let shown =
        format!("[users.&#34;{}&#34;]\n&#34;ben\\&#34;1&#60;b&#62;&#34; = &#34;NAME&#34;", scene.provider.issuer);
    assert!(answer.body.contains(&shown), "{}", answer.body);
    // An admin adds the lines of the page. There is no restart.
    scene.configure("\"ben\\\"1<b>\" = \"ben\"");
    let answer = wait_until("the head to read openid.toml", 30, || {
        Some(scene.sign_in("/")).filter(|answer| answer.status == 200)
    });
    let cookie = session(&answer, scene.port);
    assert!(scene.get("/", &cookie).body.contains("ben (user)"));
    // A blocked user gets no session, and the old one ends.
    scene.site.admin(&["configure", "user", "block", "ben"]);
    scene.fails(&scene.sign_in("/"), 403, "blocked");
    assert_ne!(scene.get("/", &cookie).status, 200);
    // A user who does not exist.
    scene.configure("\"ben\\\"1<b>\" = \"eve\"");
    let answer = wait_until("the head to read openid.toml", 30, || {
        Some(scene.sign_in("/")).filter(|answer| !answer.body.contains("blocked"))
    });
    scene.fails(&answer, 403, "whom the cluster does not have");

    // A file that others may read does not count, and the cluster's admins see why.
    let path = scene.site.cluster.path("head/openid.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("permitted");
    wait_until("the head to ignore the file", 30, || {
        (!scene.get("/sign-in", "").body.contains("Example Lab")).then_some(())
    });
    let answer = scene.get("/sign-in/openid", "");
    assert!(answer.status == 409 && answer.body.contains("not set up correctly"), "{answer:?}");
    let info: Value = serde_json::from_str(&scene.site.admin(&["info", "--json"])).expect("JSON");
    assert!(info["head"]["warning"].as_str().is_some_and(|it| it.contains("chmod 600")), "{info}");
    fs::remove_file(path).expect("removed");
    wait_until("the head to miss the file", 30, || {
        (scene.get("/sign-in/openid", "").body.contains("no sign-in with")).then_some(())
    });
}

#[test]
fn forged_tokens_give_no_session() {
    let scene = Scene::set();
    let past = json!({ "exp": 1_000_000_000, "iat": 999_999_000 });
    let future = json!({ "exp": 9_000_000_000_u64, "iat": 8_999_999_000_u64 });
    for (sign, claims, why) in [
        (Sign::None, json!({}), "signed with &#34;none&#34;"),
        (Sign::Hs256, json!({}), "signed with &#34;HS256&#34;"),
        (Sign::ForeignKey, json!({}), "its signature is wrong"),
        (Sign::Rs256, json!({ "nonce": "other" }), "does not belong to this sign-in"),
        (Sign::Rs256, json!({ "aud": "other" }), "for another application"),
        (Sign::Es256, json!({ "aud": [CLIENT, "other"], "azp": "other" }), "for another application"),
        (Sign::Rs256, json!({ "iss": "https://evil.example" }), "another provider issued it"),
        (Sign::Es256, past, "clocks"),
        (Sign::Es256, future, "clocks"),
    ] {
        scene.provider.plan(Plan { sign, claims: claims.clone(), ..Plan::default() });
        scene.fails(&scene.sign_in("/"), 401, why);
    }
    // Failures of one address are counted; those about clocks are not guesses. A valid sign-in is never refused.
    scene.provider.plan(Plan { claims: json!({ "aud": "other" }), ..Plan::default() });
    for _ in 0..3 {
        scene.fails(&scene.sign_in("/"), 401, "for another application");
    }
    scene.fails(&scene.sign_in("/"), 429, "too many failed logins");
    scene.provider.plan(Plan::default());
    session(&scene.sign_in("/"), scene.port);
}

#[test]
fn sign_in_belongs_to_one_browser_and_happens_once() {
    let mut scene = Scene::set();
    let port = scene.port;
    // A link that somebody else has prepared, in a browser without their cookie or with its own.
    let (path, cookie) = scene.approved("/");
    let (_, own) = scene.begin("/");
    for cookie in ["none=1", &own, &format!("hostler-{port}-openid="), &format!("hostler-{port}-openid=x.y")] {
        scene.fails(&scene.get(&path, cookie), 401, "another browser");
    }
    // A stolen code with the thief's own state: PKCE protects it at the provider, and the nonce at the head.
    let (link, own) = scene.begin("/");
    let state = &fields(link.split_once('?').expect("a query").1)["state"];
    let code = fields(path.split_once('?').expect("a query").1)["code"].clone();
    scene.provider.plan(Plan { is_careless: true, ..Plan::default() });
    let stolen = format!("/sign-in/openid/callback?code={code}&state={state}");
    scene.fails(&scene.get(&stolen, &own), 401, "does not belong to this sign-in");
    scene.provider.plan(Plan::default());
    // The code of the first browser works once.
    session(&scene.get(&path, &cookie), port);
    scene.fails(&scene.get(&path, &cookie), 401, "the code was used before");
    // The person says no.
    let (link, own) = scene.begin("/");
    let state = &fields(link.split_once('?').expect("a query").1)["state"];
    let denied = format!("/sign-in/openid/callback?error=access_denied&error_description=%3Cb%3Eno&state={state}");
    let answer = scene.get(&denied, &own);
    scene.fails(&answer, 401, "access_denied (&#60;b&#62;no)");
    // The provider is away. Login codes still work.
    let (path, own) = scene.approved("/");
    scene.provider.stop();
    scene.fails(&scene.get(&path, &own), 502, "the sign-in provider does not answer");
    scene.site.sign_in(port, &scene.host, &scene.site.invite("ada"));
}

/// What an attacker can compute who knows the secret of a sign-in: its state, and the parameters of the link to the
/// provider.
fn prepared(scene: &Scene, secret: &[u8]) -> (String, String) {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let derive = |what: &str| BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, what.as_bytes()));
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, derive("verifier").as_bytes()));
    let (state, nonce) = (derive("state"), derive("nonce"));
    let link = format!(
        "{}/authorize?response_type=code&client_id=hostler%3A1&redirect_uri=http://{}/sign-in/openid/callback\
         &scope=openid&state={state}&nonce={nonce}&code_challenge={challenge}&code_challenge_method=S256",
        scene.provider.issuer, scene.host
    );
    let back = scene.provider.approve(&link);
    let (_, path) = back.split_once(&scene.host).expect("the dashboard");
    (path.to_owned(), state)
}

#[test]
fn prepared_link_neither_signs_in_nor_ends_a_session_nor_shows_a_text() {
    let scene = Scene::set();
    scene.configure("ada-1 = \"ada\"\nben-1 = \"ben\"");
    let victim = session(&scene.sign_in("/"), scene.port);
    scene.provider.plan(Plan { claims: json!({ "sub": "ben-1" }), ..Plan::default() });
    wait_until("the attacker to have an account", 30, || (scene.sign_in("/").status == 200).then_some(()));
    // The secret of a browser without a cookie is not the empty one, and nobody can make up a secret.
    for (secret, cookie) in [(&b""[..], String::new()), (&[0xab; 32], "ab".repeat(32)), (&[0; 32], "00".repeat(32))] {
        let (path, state) = prepared(&scene, secret);
        let cookies = match cookie.as_str() {
            "" => vec![victim.clone(), format!("{victim}; hostler-{}-openid=", scene.port)],
            cookie => vec![format!("{victim}; hostler-{}-openid={cookie}.", scene.port)],
        };
        for cookies in cookies {
            let answer = scene.get(&path, &cookies);
            scene.fails(&answer, 401, "another browser");
            let text = format!("/sign-in/openid/callback?state={state}&error=Your+account+is+locked");
            let answer = scene.get(&text, &cookies);
            scene.fails(&answer, 401, "another browser");
            assert!(!answer.body.contains("locked"), "{answer:?}");
        }
        // The API takes no other text for a secret either.
        let code = path.split_once("code=").expect("a code").1.split('&').next().expect("split has a first part");
        let body = json!({ "secret": cookie, "state": state, "code": code }).to_string();
        let ask = Ask { body: &body, ..Ask::post("/api/v1/login/openid", &scene.host, "") };
        let ask = Ask { headers: vec![("host", &scene.host), ("content-type", "application/json")], ..ask };
        let answer = ask.send(scene.port);
        assert_eq!(answer.status, if cookie.is_empty() { 422 } else { 401 }, "{answer:?}");
    }
    assert!(scene.get("/", &victim).body.contains("ada (user)"), "the victim's session goes on");
    // A link of somebody else does not end a sign-in that this browser has begun.
    scene.provider.plan(Plan::default());
    let (path, cookie) = scene.approved("/");
    scene.fails(&scene.get("/sign-in/openid/callback?state=x&code=y", &cookie), 401, "another browser");
    session(&scene.get(&path, &cookie), scene.port);
}
