//! The terminal of a job, typed into and looked at in the browser.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use hostler_testkit::{Cluster, RealCluster, Size, end, free_port, wait_until};
use serde_json::{Value, json};

use crate::browser::{Browser, DESKTOP, View};
use crate::{HOSTLER, Visit};

/// Keys as WebDriver names them.
const ESCAPE: char = '\u{e00c}';
const ENTER: char = '\u{e007}';
const SHIFT: char = '\u{e008}';
const CONTROL: char = '\u{e009}';
const UP: char = '\u{e013}';
const PAGE_UP: char = '\u{e00e}';

/// The lines on the screen.
fn screen(browser: &Browser) -> String {
    browser.run_script("return document.querySelector('.screen').textContent").as_str().unwrap_or_default().to_owned()
}

/// Waits until the screen shows these words.
fn wait_for(browser: &Browser, words: &str) -> String {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let text = screen(browser);
        if text.contains(words) {
            return text;
        }
        assert!(Instant::now() < end, "no {words:?} on the screen within a minute:\n{text}");
        sleep(Duration::from_millis(100));
    }
}

/// Waits until a program prompts: programs discard what was typed before they began or ended.
fn wait_for_prompt(browser: &Browser, prompt: char) {
    wait_until("the prompt", 60, || screen(browser).trim_end().ends_with(&format!("\n{prompt}")).then_some(()));
}

/// Types a command.
fn enter(browser: &Browser, text: &str) {
    browser.type_keys(&format!("{text}{ENTER}"));
}

/// A command that runs a shell in a terminal.
const SHELL: [&str; 8] = ["run", "--detach", "--pty", "-m", "64M", "--", "bash", "--norc"];

/// Starts a shell in a terminal and waits until it runs.
fn shell(cluster: &Cluster) -> String {
    let output = cluster.command(&SHELL).env("TERM", "xterm-256color").output().expect("the executable can be started");
    let job = String::from_utf8(output.stdout).expect("text").trim().to_owned();
    cluster.wait_for_state(&job, "running");
    job
}

/// The numbers of rows and columns that the job knows.
fn size(browser: &Browser) -> (u32, u32) {
    enter(browser, "clear; stty size; echo done$((1))");
    let text = wait_for(browser, "done1");
    let mut lines = text.lines().rev().filter_map(|line| {
        let (rows, columns) = line.trim().split_once(' ')?;
        Some((rows.parse().ok()?, columns.parse().ok()?))
    });
    lines.next().unwrap_or_else(|| panic!("stty prints the size:\n{text}"))
}

#[test]
fn shell_and_editor_work_in_the_browser() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    let job = shell(&cluster);
    let visit = Visit::of(&cluster, DESKTOP);
    let browser = &visit.browser;
    // The first page is small, and has no script of the terminal.
    let loaded = || {
        browser.run_script(
            "return performance.getEntries().filter(it => it.encodedBodySize).map(it => [it.name, it.encodedBodySize])",
        )
    };
    wait_until("the page to be loaded", 60, || {
        (browser.run_script("return document.readyState") == "complete").then_some(())
    });
    let first = loaded();
    let bytes: u64 = first.as_array().into_iter().flatten().filter_map(|it| it[1].as_u64()).sum();
    assert!((10_000..150_000).contains(&bytes) && !first.to_string().contains("/assets/terminal-"), "{first}");
    visit.open(&format!("/jobs/{job}"));
    browser.press("terminal");
    browser.wait_for("Attached.");
    assert!(loaded().to_string().contains("/assets/terminal-"), "{}", loaded());
    let enter = |text: &str| enter(browser, text);

    enter("PS1='> '; echo sum $((40+2))");
    wait_for(browser, "sum 42");
    enter("printf '\\033[31mred\\033[0m \\033[38;2;1;2;3mexact\\033[0m wide:\\xe6\\x97\\xa5.\\n'");
    wait_for(browser, "red exact wide:日.");
    let looks = "const shown = [...document.querySelectorAll('.screen span span')]; \
                 return shown.filter(it => it.textContent === 'red' || it.textContent === 'exact').map(it => [it.className.trim(), it.style.color])";
    assert_eq!(browser.run_script(looks), json!([["t1", ""], ["", "rgb(1, 2, 3)"]]));
    browser.take_picture("terminal-shell");
    // The shell's history: keys of the cursor arrive.
    enter("echo again $((1+1))");
    wait_for(browser, "again 2");
    enter("clear");
    browser.type_keys(&format!("{UP}{UP}{ENTER}"));
    wait_for(browser, "again 2");

    // The window's size reaches the job.
    let (rows, columns) = size(browser);
    assert!(rows > 20 && columns > 80, "{rows} {columns}");
    browser.set_size(700, 600);
    wait_until("the new size", 30, || (size(browser) < (rows, columns)).then_some(()));
    browser.set_size(1280, 900);
    wait_until("the old size", 30, || (size(browser) == (rows, columns)).then_some(()));

    // Programs that use the whole screen, and leave it as it was.
    enter("vim -u NONE -c 'set number ruler' story.txt");
    wait_for(browser, "\"story.txt\" [New");
    browser.type_keys(&format!("ionce upon a time{ENTER}there was a cell{ESCAPE}"));
    wait_for(browser, "  2 there was a cell");
    browser.take_picture("terminal-vim");
    browser.type_keys("ggdd");
    let text = wait_for(browser, "  1 there was a cell");
    assert!(!text.contains("once upon"), "{text}");
    enter(":wq");
    wait_for_prompt(browser, '>');
    enter("echo saved $(cat story.txt)");
    let text = wait_for(browser, "saved there was a cell");
    assert!(!text.contains("\n~"), "the main screen is back: {text}");
    enter("seq 1000 | less");
    wait_for_prompt(browser, ':');
    browser.type_keys("/777");
    enter("");
    let text = wait_for(browser, "\n778 ");
    assert!(text.contains("777 ") && !text.contains("776 "), "less jumps to the line it found:\n{text}");
    browser.take_picture("terminal-less");
    browser.type_keys("q");
    wait_for_prompt(browser, '>');
    enter("top -d 1");
    wait_for(browser, "load average");
    wait_for(browser, "COMMAND");
    browser.take_picture("terminal-top");
    browser.type_keys("q");
    wait_for_prompt(browser, '>');

    // The keyboard can leave the terminal.
    browser.press_chord(&[SHIFT, ESCAPE]);
    assert_eq!(browser.run_script("return document.activeElement.id"), "detach");
    browser.press_key(ENTER);
    browser.wait_for("Detached.");
    assert_eq!(cluster.state(&job), "running", "the job continues");
    browser.press("Attach again");
    browser.wait_for("Attached.");
    assert_eq!(browser.violations(), [""; 0]);
    enter("exit");
    browser.wait_for("The task or your session has ended");
    browser.press("Attach again");
    browser.wait_for("The task has ended.");
    visit.end();
}

#[test]
fn hostile_output_changes_nothing_but_the_screen() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    let job = shell(&cluster);
    let visit = Visit::of(&cluster, DESKTOP);
    let browser = &visit.browser;
    visit.open(&format!("/jobs/{job}/tasks/0/terminal"));
    browser.wait_for("Attached.");
    let title = browser.run_script("return document.title");
    enter(browser, "PS1='> '; clear; echo '<img src=x onerror=window.harmed=1><script>window.harmed=1</script>'");
    wait_for(browser, "<img src=x onerror=window.harmed=1><script>window.harmed=1</script>  ");
    // Questions that many terminals answer, which puts bytes into the shell's input; a title; the clipboard; a font.
    let questions = r"\033[c\033[>c\033[5n\033[6n\033[21t\033[?2026$p\033P$qm\033\\\033]10;?\007\033]0;title\007\033]52;c;aGFybQ==\007\033]50;x\007\005";
    // Numbers and strings without bounds, sequences without ends, and characters that mark others without end.
    let bounds = r"\033[999999999999C\033[99999999L\033[9999b\033[0;0r\033[9;1r\033[38;5m\033[38;2;1m\033[;;;;999999m\033[99999999999999999999\030";
    enter(
        browser,
        &format!(
            "clear; printf '{questions}{bounds}\\n'; printf '\\xcc\\x81%.0s' {{1..5000}}; printf '\\033c'; echo asked$((1))"
        ),
    );
    wait_for(browser, "asked1");
    enter(browser, "echo typed");
    let text = wait_for(browser, "\ntyped");
    assert!(text.contains("> echo typed"), "the shell got nothing but what was typed:\n{text}");
    assert_eq!(browser.run_script("return document.title"), title);
    assert_eq!(browser.run_script("return window.harmed ?? null"), Value::Null);
    // A flood: lines that leave the screen are kept up to a bound.
    enter(browser, "seq 50000; echo counted$((1))");
    wait_for(browser, "counted1");
    // Output without end can be stopped.
    enter(browser, "yes forever");
    wait_for(browser, "\nforever");
    browser.press_chord(&[CONTROL, 'c']);
    enter(browser, "echo stopped$((1))");
    wait_for(browser, "stopped1");
    let lines = browser.run_script("return document.querySelectorAll('.screen .l').length");
    assert!(lines.as_u64().is_some_and(|lines| (1000..1300).contains(&lines)), "{lines}");
    let below = || {
        let rest =
            "const it = document.querySelector('.screen'); return it.scrollHeight - it.clientHeight - it.scrollTop";
        browser.run_script(rest).as_f64().expect("a number")
    };
    assert!(below() < 5.0, "the last line is in view");
    browser.press_chord(&[SHIFT, PAGE_UP]);
    wait_until("earlier lines", 30, || (below() > 100.0).then_some(()));
    enter(browser, "");
    wait_until("the last line", 30, || (below() < 5.0).then_some(()));
    visit.end();
}

#[test]
fn terminal_works_on_a_phone() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    let job = shell(&cluster);
    let visit = Visit::of(&cluster, View { is_phone: true, is_dark: true, ..DESKTOP });
    let browser = &visit.browser;
    visit.open(&format!("/jobs/{job}/tasks/0/terminal"));
    browser.wait_for("Attached.");
    browser.find(".screen").click();
    enter(browser, "PS1='> '; ls --color=always -l / | tail -n 9; sleep 1000");
    wait_for(browser, "usr");
    // Keys that the phone's keyboard lacks.
    browser.press("Ctrl+C");
    enter(browser, "echo free$((1))");
    wait_for(browser, "free1");
    browser.take_picture("terminal");
    let (_, columns) = size(browser);
    assert!((20..60).contains(&columns), "{columns} columns");
    let is_too_wide = "return document.documentElement.scrollWidth > window.innerWidth";
    assert_eq!(browser.run_script(is_too_wide), false);
    assert_eq!(browser.violations(), [""; 0]);
    visit.end();
}

#[test]
fn sign_out_ends_the_terminal() {
    let real = RealCluster::start(HOSTLER);
    let site = format!("127.0.0.1:{}", free_port());
    let settings = fs::read_to_string(real.path("head/head.toml")).expect("the head has settings");
    real.home.write("head/head.toml", format!("http = \"{site}\"\n{settings}"));
    real.kill_head();
    real.run_head();
    let agent = real.add_node("n1");
    let job = real.ok(&SHELL);
    real.wait_for_job(&job, "running");
    real.ok(&["configure", "user", "add", "ada", "--role", "operator"]);
    let code = real.ok(&["configure", "user", "invite", "ada"]);

    let browser = Browser::start(&real.home.path("browser"), DESKTOP);
    browser.open(&format!("http://{site}/jobs/{job}/tasks/0/terminal"));
    browser.find("input[name=code]").type_text(code.trim());
    browser.press("Sign in");
    browser.wait_for("Attached.");
    assert!(browser.find("main").text().contains("You can only watch"), "the job is of another user");
    wait_for(&browser, "bash");
    // As if another tab did it, so that the page with the terminal stays open.
    browser.run_script(
        "const body = new URLSearchParams({ token: document.querySelector('[name=token]').value }); \
         return fetch('/sign-out', { method: 'POST', body }).then(it => it.status)",
    );
    browser.wait_for("Detached.");
    browser.press("Attach again");
    browser.wait_for("Login code");
    assert_eq!(real.json(&["job", &job])["state"], "running", "the job continues");
    browser.end();
    end(agent);
}

#[test]
fn terminal_without_scripts_names_the_command() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    let job = shell(&cluster);
    let visit = Visit::of(&cluster, View { has_scripts: false, ..DESKTOP });
    visit.open(&format!("/jobs/{job}/tasks/0/terminal"));
    let text = visit.browser.find("main").text();
    assert!(text.contains("needs scripts") && text.contains(&format!("hostler attach {job}")), "{text}");
    visit.end();
}
