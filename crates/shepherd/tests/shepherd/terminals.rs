//! Tests of runs on a terminal, with clients that attach and detach.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use hostler_shepherd::{Attachment, Cause, ControlError, Launch, Status, WindowSize};

use crate::common::{DEADLINE, directory, eventually, finish, run, script, start_run, stdout};

fn on_terminal(directory: &Path, text: &str) -> Launch {
    let mut launch = script(directory, text);
    launch.options.terminal = Some(size(24, 80));
    launch
}

fn size(rows: u16, columns: u16) -> WindowSize {
    WindowSize { rows, columns }
}

/// Reads until `wanted` was received; returns all data.
fn read_until(attachment: &Attachment, wanted: &str) -> String {
    let mut seen = Vec::new();
    let deadline = Instant::now() + DEADLINE;
    attachment.stream().set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    while !String::from_utf8_lossy(&seen).contains(wanted) {
        assert!(Instant::now() < deadline, "{wanted:?} is not in {:?}", String::from_utf8_lossy(&seen));
        let mut chunk = [0; 4096];
        match attachment.stream().read(&mut chunk) {
            Ok(0) => panic!("ended without {wanted:?}: {:?}", String::from_utf8_lossy(&seen)),
            Ok(length) => seen.extend_from_slice(&chunk[..length]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    String::from_utf8(seen).expect("text")
}

fn read_to_end(attachment: Attachment) -> Vec<u8> {
    let mut rest = Vec::new();
    let mut stream = attachment.into_stream();
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    stream.read_to_end(&mut rest).expect("the run ends");
    rest
}

#[test]
fn job_on_a_terminal_gets_a_tty_and_its_output_is_stored() {
    let dir = directory();
    let record = run(&on_terminal(dir.path(), "test -t 0 && test -t 1 && test -t 2 && stty size && tty; exit 2"));
    assert_eq!(record.status, Status::Exited { code: 2 });
    let text = stdout(dir.path());
    assert!(text.starts_with("24 80\r\n/dev/pts/"), "{text:?}");
    assert_eq!(record.stdout_bytes, text.len() as u64);
}

#[test]
fn output_just_before_the_end_is_not_lost() {
    for _ in 0..20 {
        let dir = directory();
        run(&on_terminal(dir.path(), "seq 1 3000"));
        let expected: String = (1..=3000).map(|n| format!("{n}\r\n")).collect();
        assert!(stdout(dir.path()) == expected, "the output has {} bytes", stdout(dir.path()).len());
    }
}

#[test]
fn clients_can_attach_detach_and_reattach_with_another_window_size() {
    let dir = directory();
    let text = "echo ready; while read line; do echo \"got $line\"; stty size; done; echo bye";
    let mut shepherd = start_run(&on_terminal(dir.path(), text));

    let first = Attachment::open(dir.path(), size(30, 100)).expect("running");
    read_until(&first, "ready");
    first.type_in(b"one\n").expect("running");
    read_until(&first, "got one\r\n30 100\r\n");
    first.resize(size(31, 101)).expect("running");
    first.type_in(b"two\n").expect("running");
    read_until(&first, "got two\r\n31 101\r\n");
    drop(first);
    eventually("the shepherd notices the detach", || shepherd.status().expect("the shepherd runs").attached == 0);

    let second = Attachment::open(dir.path(), size(50, 132)).expect("running");
    let replay = read_until(&second, "31 101\r\n");
    assert!(replay.starts_with("ready\r\n"), "the replay starts at the beginning: {replay:?}");
    let third = Attachment::open(dir.path(), size(51, 133)).expect("running");
    eventually("both clients are attached", || shepherd.status().expect("the shepherd runs").attached == 2);
    second.type_in(b"three\n").expect("running");
    read_until(&second, "got three\r\n51 133\r\n");
    read_until(&third, "got three\r\n51 133\r\n");

    // An end of file on the terminal ends the loop.
    third.type_in(b"\x04").expect("running");
    let record = finish(&mut shepherd, dir.path());
    assert_eq!(record.status, Status::Exited { code: 0 });
    assert!(read_to_end(second).ends_with(b"bye\r\n"));
    assert!(read_to_end(third).ends_with(b"bye\r\n"));
    assert!(stdout(dir.path()).ends_with("bye\r\n"));
}

#[test]
fn interrupt_character_interrupts_the_job() {
    let dir = directory();
    let mut shepherd =
        start_run(&on_terminal(dir.path(), "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done"));
    let client = Attachment::open(dir.path(), size(24, 80)).expect("running");
    read_until(&client, "ready");
    client.type_in(b"\x03").expect("running");
    let record = finish(&mut shepherd, dir.path());
    assert_eq!((record.status, record.cause), (Status::Exited { code: 3 }, None));
}

#[test]
fn slow_client_does_not_delay_the_job() {
    let dir = directory();
    let mut shepherd = start_run(&on_terminal(dir.path(), "read go; seq 1 400000; echo the end; read done"));
    let idle = Attachment::open(dir.path(), size(24, 80)).expect("running");
    idle.type_in(b"\n").expect("running");
    let log = dir.path().join("stdout");
    eventually("the job has printed all lines", || {
        std::fs::read(&log).is_ok_and(|text| text.ends_with(b"the end\r\n"))
    });
    assert!(std::fs::metadata(&log).expect("the file exists").len() > 3_000_000);
    // The client missed output, gets a notice, and is then up to date.
    let seen = read_until(&idle, "the end\r\n");
    assert!(seen.contains("[output skipped]"), "{} bytes", seen.len());
    idle.type_in(b"\n").expect("running");
    finish(&mut shepherd, dir.path());
}

#[test]
fn shepherd_responds_while_the_job_does_not_read_input() {
    let dir = directory();
    let mut shepherd = start_run(&on_terminal(dir.path(), "stty raw; echo ready; exec sleep 600"));
    let client = Attachment::open(dir.path(), size(24, 80)).expect("running");
    read_until(&client, "ready");
    client.stream().set_nonblocking(true).expect("a socket");
    // More than all buffers on the way can hold.
    let line = vec![b'x'; 32 << 10];
    for _ in 0..200 {
        let _ = client.type_in(&line);
    }
    assert_eq!(shepherd.status().expect("the shepherd answers").attached, 1);
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    assert_eq!(finish(&mut shepherd, dir.path()).cause, Some(Cause::Cancelled));
}

#[test]
fn job_can_close_and_reopen_its_terminal() {
    let dir = directory();
    let text = "echo first; exec </dev/null >/dev/null 2>&1; sleep 0.3; echo again >/dev/tty; exit 4";
    let record = run(&on_terminal(dir.path(), text));
    assert_eq!(record.status, Status::Exited { code: 4 });
    assert_eq!(stdout(dir.path()), "first\r\nagain\r\n");
}

#[test]
fn terminal_has_a_limited_number_of_clients_and_a_place_for_the_next_agent() {
    let dir = directory();
    let mut shepherd = start_run(&on_terminal(dir.path(), "echo ready; exec sleep 600"));
    let attach = || Attachment::open(dir.path(), size(24, 80));
    let mut crowd: Vec<Attachment> = (0..32).map(|_| attach().expect("a free place")).collect();
    for _ in 0..3 {
        let refused = attach().expect_err("the terminal has no free place");
        assert!(matches!(&refused, ControlError::Refused(reason) if reason.starts_with("32 clients")), "{refused}");
    }
    read_until(&crowd[31], "ready");
    let hostler_shepherd::Adopted::Running(mut next) = hostler_shepherd::adopt(dir.path()).expect("readable") else {
        panic!("the run has ended")
    };
    assert_eq!(next.status().expect("the shepherd answers").attached, 32);
    crowd.pop();
    eventually("a place is free", || shepherd.status().expect("the shepherd runs").attached == 31);
    read_until(&attach().expect("a free place"), "ready");
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    finish(&mut shepherd, dir.path());
}

#[test]
fn attaching_to_a_run_without_terminal_is_refused() {
    let dir = directory();
    let mut shepherd = start_run(&script(dir.path(), "exec sleep 600"));
    let refused = Attachment::open(dir.path(), size(24, 80)).expect_err("the run has no terminal");
    assert!(matches!(&refused, ControlError::Refused(reason) if reason == "this run has no terminal"), "{refused}");
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    finish(&mut shepherd, dir.path());
}
