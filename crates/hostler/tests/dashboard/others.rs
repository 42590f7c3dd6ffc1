//! Jobs of other users, and files outside of a result, by their address.

use std::fs;

use hostler_testkit::wait_until;

use crate::http::{Answer, Ask};
use crate::site::{Site, free_port};

/// A word in every part of root's jobs that only root may see.
const SECRET: &str = "gugelhupf";

/// A site with a node and the users ada and ben. Root has an ended job with files and a running job.
fn site(http: &str) -> (Site, String, String) {
    let mut site = Site::start(&["--http", http]);
    site.start_agent();
    for user in ["ada", "ben"] {
        site.admin(&["configure", "user", "add", user]);
    }
    let outside = site.cluster.write("outside.txt", format!("{SECRET} outside"));
    let script = format!(
        "echo {SECRET}; echo {SECRET} >&2; mkdir -p deep/er; echo {SECRET} > deep/er/file-{SECRET}.txt; echo {SECRET} > plain.txt\n\
         ln -s {} link; ln -s / root; ln -s ../.. deep/up; ln -s deep/er inner; printf '\\211PNG\\r\\n\\032\\n' > plot.png\n",
        outside.display()
    );
    site.cluster.write("project/main.sh", script);
    let submit = ["submit", &site.path("project"), "main.sh", "-m", "16M", "--name", &format!("name-{SECRET}")];
    let ended = site.admin(&submit);
    let running = site.admin(&["run", "--detach", "-m", "16M", "--", "sh", "-c", &format!("sleep 1000; : {SECRET}")]);
    let state = |id: &str| site.cluster.json(&["--head", &site.socket(), "job", id])["state"].clone();
    wait_until("the jobs", 60, || (state(&ended) == "completed" && state(&running) == "running").then_some(()));
    (site, ended, running)
}

#[test]
fn jobs_of_others_are_as_closed_on_pages_as_in_the_api() {
    let port = free_port();
    let host = &format!("127.0.0.1:{port}");
    let (site, ended, running) = site(host);
    let cookie = site.sign_in(port, host, &site.invite("ben"));
    let bearer = format!("Bearer {}", cookie.split_once('=').expect("a cookie").1);
    let page = |path: &str| Ask::get(path, host).with("cookie", &cookie).send(port);
    let api = |path: &str| Ask::get(&format!("/api/v1{path}"), host).with("authorization", &bearer).send(port);
    for id in [&ended, &running] {
        let task = format!("/jobs/{id}/tasks/0");
        for (path, operation) in [
            (format!("{task}/output/stdout"), format!("{task}/output/stdout")),
            (format!("{task}/output/stderr?q={SECRET}"), format!("{task}/output/stderr")),
            (format!("{task}/output/setup/more?from=0"), format!("{task}/output/setup")),
            (format!("{task}/output/stdout/raw"), format!("{task}/output/stdout")),
            (format!("{task}/output/stdout/raw?download"), format!("{task}/output/stdout")),
            (format!("{task}/files"), format!("{task}/files")),
            (format!("{task}/files?file=plain.txt"), format!("{task}/file?path=plain.txt")),
            (format!("{task}/files/download?path=plain.txt"), format!("{task}/file?path=plain.txt")),
            (format!("{task}/files/image?path=plot.png"), format!("{task}/file?path=plot.png")),
            (format!("{task}/usage"), format!("{task}/usage")),
        ] {
            let (page, api) = (page(&path), api(&operation));
            assert!(matches!(api.status, 403 | 404), "{operation}: {api:?}");
            assert_eq!(page.status, api.status, "{path}: {page:?}");
            for answer in [page, api] {
                let said = answer.body.replace(&path, "").replace(&format!("q={SECRET}"), "");
                assert!(!said.contains(SECRET), "{path}: {said}");
            }
        }
        // Everybody may see that a job exists, but not what it does.
        for path in [format!("/jobs/{id}"), format!("/jobs/{id}/duplicate"), "/jobs?user=&state=all".to_owned()] {
            let page = page(&path);
            let said = page.body.replace(&format!("name-{SECRET}"), "");
            assert!(!said.contains(SECRET), "{path}: {said}");
        }
        // A form of ben's own page does not act on the job.
        let token = page("/").field("token");
        for (path, form) in [
            (format!("/jobs/{id}/duplicate"), format!("token={token}&command=true")),
            ("/jobs/act".to_owned(), format!("token={token}&action=cancel&job={id}&confirmed=yes&back=/jobs")),
            ("/nodes/n1".to_owned(), format!("token={token}&action=drain&reason=x&confirmed=yes")),
            ("/settings".to_owned(), format!("token={token}&action=set&name=policy&value=fifo&confirmed=yes")),
            ("/people".to_owned(), format!("token={token}&name=eve&role=admin&confirmed=yes")),
            ("/people/ben".to_owned(), format!("token={token}&action=role&role=admin&confirmed=yes")),
        ] {
            let ask = Ask::post(&path, host, &form).with("cookie", &cookie).with("sec-fetch-site", "same-origin");
            let answer = ask.send(port);
            assert!(!answer.body.contains(SECRET), "{path}: {answer:?}");
        }
    }
    let job = |id: &str| site.cluster.json(&["--head", &site.socket(), "job", id]);
    assert_eq!(job(&running)["state"], "running", "the job was not cancelled");
    let all = site.cluster.json(&["--head", &site.socket(), "jobs", "--all"]);
    assert_eq!(all["total"], 2, "the jobs were not duplicated: {all}");
    assert!(!site.admin(&["nodes"]).contains("drain"));
    let users = site.admin(&["configure", "user", "list"]);
    assert!(!users.contains("eve") && !users.contains("admin"), "{users}");
}

#[test]
fn paths_lead_to_files_of_the_result_only() {
    let port = free_port();
    let host = &format!("127.0.0.1:{port}");
    let (site, ended, _) = site(host);
    site.admin(&["configure", "user", "role", "ada", "admin"]);
    let cookie = site.sign_in(port, host, &site.invite("ada"));
    let get = |path: &str| Ask::get(path, host).with("cookie", &cookie).send(port);
    let task = format!("/jobs/{ended}/tasks/0");
    let good = get(&format!("{task}/files/download?path=plain.txt"));
    assert!(good.status == 200 && good.body.contains(SECRET), "{good:?}");
    assert_harmless(&good);
    assert_eq!(get(&format!("{task}/files?directory=deep/er")).status, 200);
    let etc = fs::read_to_string("/etc/passwd").expect("every system has it");
    let line = etc.lines().next().expect("a first line");
    let hidden = [line, &format!("{SECRET} outside")];
    for path in [
        "link",
        "root/etc/passwd",
        "root%2fetc%2fpasswd",
        "deep/up/plain.txt",
        "inner/file-gugelhupf.txt",
        "..",
        "../project/main.sh",
        "deep/../plain.txt",
        "%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%252e%252e%252fetc%252fpasswd",
        "..%5c..%5cetc%5cpasswd",
        "%c0%ae%c0%ae%2fetc%2fpasswd",
        "/etc/passwd",
        "//etc/passwd",
        "%2fetc%2fpasswd",
        "file:///etc/passwd",
        "plain.txt%00",
        "plain.txt%00.png",
        "./plain.txt",
        "plain.txt/",
        "",
    ] {
        for address in [
            format!("{task}/files/download?path={path}"),
            format!("{task}/files/image?path={path}"),
            format!("{task}/files?file={path}"),
        ] {
            let answer = get(&address);
            assert!(matches!(answer.status, 400 | 404), "{address}: {answer:?}");
            assert!(hidden.iter().all(|text| !answer.body.contains(text)), "{address}: {answer:?}");
        }
        if !path.is_empty() {
            let answer = get(&format!("{task}/files?directory={path}"));
            assert!(matches!(answer.status, 400 | 404), "directory {path}: {answer:?}");
        }
    }
    // A path in place of the parameters of other pages.
    for address in [
        "/assets/../../../../etc/passwd",
        "/assets/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/jobs/..%2f..%2fapi%2fv1%2fshutdown",
        "/nodes/..%2f..%2fapi%2fv1%2fme",
        "/nodes/n1%2fusage%3fx",
        "/people/..%2faudit",
        "/jobs/1/tasks/0/output/..%2f..%2f..%2fetc%2fpasswd",
        "/jobs/1/tasks/0/output/stdout%00",
        "/jobs/-1",
        "/jobs/1%20",
        "/jobs/18446744073709551616",
    ] {
        let answer = get(address);
        assert!(matches!(answer.status, 400 | 404), "{address}: {answer:?}");
        assert!(hidden.iter().all(|text| !answer.body.contains(text)), "{address}: {answer:?}");
    }
}

/// A downloaded file never runs as a part of the dashboard.
fn assert_harmless(answer: &Answer) {
    for (name, part) in [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox"),
        ("x-frame-options", "DENY"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert!(answer.header(name).is_some_and(|value| value.contains(part)), "{name}: {}", answer.head);
    }
}
