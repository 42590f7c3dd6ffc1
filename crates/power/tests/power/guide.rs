//! Tests of the examples in the guide.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hostler_power::{Answer, ControllerConfig, Supply, Verb};

use crate::common::{controller, program, site};

/// The guide's code blocks in this language.
fn blocks(language: &str) -> Vec<String> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo");
    let guide = fs::read_to_string(Path::new(&manifest).join("../../docs/guides/power.md")).expect("the guide exists");
    let opening = format!("{language}\n");
    let blocks = guide.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix(&opening));
    blocks.map(str::to_owned).collect()
}

#[test]
fn every_example_is_a_complete_configuration() {
    let examples: Vec<_> = blocks("toml").into_iter().filter(|block| block.starts_with("kind = ")).collect();
    assert!(examples.len() >= 5, "missing examples");
    for example in examples {
        let plain = toml::from_str::<ControllerConfig>(&example);
        plain.unwrap_or_else(|error| panic!("{example}\n{error}"));
        // Lines that are commented out must be valid too.
        let all: Vec<_> = example
            .lines()
            .map(|line| line.strip_prefix("# ").filter(|it| it.contains(" = ")).unwrap_or(line))
            .collect();
        let all = all.join("\n");
        toml::from_str::<ControllerConfig>(&all).unwrap_or_else(|error| panic!("{all}\n{error}"));
    }
}

/// A simulated Tasmota plug for the guide's script. It answers a command with the resulting state.
fn plug() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("the socket is bound").to_string();
    std::thread::spawn(move || {
        let mut power = "OFF";
        for mut stream in listener.incoming().map_while(Result::ok) {
            let head = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            let request = head.collect::<Vec<_>>().swap_remove(0).replace('+', " ").replace("%20", " ");
            let body = match request.strip_suffix(" HTTP/1.1") {
                Some("GET /cm?cmnd=Status 8") => {
                    r#"{"StatusSNS":{"ENERGY":{"Total":3.1,"Power":87.5,"Factor":0.9}}}"#.to_owned()
                }
                Some(command) => {
                    power = match command {
                        "GET /cm?cmnd=Power on" => "ON",
                        "GET /cm?cmnd=Power off" => "OFF",
                        _ => power,
                    };
                    format!("{{\"POWER\":\"{power}\"}}")
                }
                None => panic!("{request}"),
            };
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).expect("the peer reads");
        }
    });
    address
}

#[tokio::test]
async fn plug_of_the_guide_is_switched() {
    let _ = program("curl", "install the package curl");
    let script = blocks("sh").into_iter().find(|block| block.contains("/etc/hostler/power/plug ADDRESS"));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("plug");
    fs::write(&path, script.expect("the guide has the script")).expect("permitted");
    fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("permitted");
    let example = blocks("toml").into_iter().find(|block| block.starts_with("kind = \"command\""));
    let example = example.expect("the guide has the example").replace("10.0.8.31", &plug());
    let plug = controller(&site(), &example.replace("/etc/hostler/power/plug", path.to_str().expect("text")));
    assert_eq!(plug.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::Off)));
    assert_eq!(plug.act(Verb::On).await, Ok(Answer::Accepted));
    assert_eq!(plug.act(Verb::On).await, Ok(Answer::Confirmed(Supply::On)));
    assert_eq!(plug.watts().await, Ok(Some(87.5)));
    assert_eq!(plug.act(Verb::OffByForce).await, Ok(Answer::Accepted));
    assert_eq!(plug.act(Verb::OffByForce).await, Ok(Answer::Confirmed(Supply::Off)));
}
