//! Settings parse, check and format their values.

use hostler_model::{PartialRequest, Request, WindowSize, Work};

use super::*;

fn after(settings: &Settings, setting: Setting, text: &str) -> Result<Settings, String> {
    Ok(settings.with(setting, settings.changed(setting, Some(text))?))
}

#[test]
fn every_value_parses_back_from_its_text() {
    for setting in Setting::ALL {
        assert_eq!(setting.as_str().parse(), Ok(setting));
        let stored = hostler_proto::encode(&setting);
        assert_eq!(stored, hostler_proto::encode(&setting.as_str()), "stored under the name that people type");
        let text = match setting.kind() {
            Kind::Time(..) => "61s",
            Kind::TimeOrNone(_) => "90m",
            Kind::Size(_) => "1536M",
            Kind::Count(..) => "3",
            Kind::Switch => "yes",
            Kind::Policy => "fcfs",
        };
        let value = setting.read(text).expect(text);
        assert_eq!(setting.write(value), text, "{setting}");
        let settings = Settings::default().with(setting, Some(value));
        assert_eq!(settings.get(setting), Some(value), "{setting}");
        assert_eq!(settings.with(setting, None), Settings::default(), "{setting}");
    }
    assert_eq!(Setting::DefaultTimeLimit.read("none"), Ok(SettingValue::TimeMs(0)));
    assert_eq!(Setting::DefaultTimeLimit.write(SettingValue::TimeMs(0)), "none");
    assert_eq!((write_time(0), write_time(1500), write_size(1000)), ("0s".into(), "1500ms".into(), "1000B".into()));
}

#[test]
fn settings_missing_from_an_old_store_get_their_defaults() {
    let old = std::collections::BTreeMap::from([("heartbeat_ms", 1_500), ("retention_ms", DAY)]);
    let read: Settings = hostler_proto::decode(&hostler_proto::encode(&old)).expect("fields may be absent");
    assert_eq!(read, Settings { heartbeat_ms: 1_500, retention_ms: DAY, ..Settings::default() });
}

#[test]
fn settings_page_lists_every_setting() {
    let page = include_str!("../../../../../docs/reference/settings.md");
    for setting in Setting::ALL {
        let (default, kind, meaning) = (setting.default_text(), setting.kind(), setting.meaning());
        let row = format!("| `{setting}` | {default} | {kind} | {meaning} |");
        assert!(page.contains(&row), "docs/reference/settings.md lacks this row:\n{row}");
    }
    let table = page.split("\n## ").next().expect("split yields at least one part");
    let rows = table.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, Setting::ALL.len(), "docs/reference/settings.md lists a setting that does not exist");
}

#[test]
fn defaults_are_valid_and_bad_values_are_refused() {
    let settings = Settings::default();
    assert_eq!(settings.check(), Ok(()));
    let refusal = |setting, text: &str| after(&settings, setting, text).expect_err(text);
    assert!(refusal(Setting::SuspectAfter, "4500ms").contains("1s more than heartbeat (4s)"));
    assert!(refusal(Setting::SuspectAfter, "9s").contains("suspect-after (9s) must be less than down-after (9s)"));
    assert!(refusal(Setting::LostAfter, "5s").contains("must be less than lost-after (5s)"));
    assert!(refusal(Setting::Heartbeat, "10ms").contains("a time from 1s to 10m, not `10ms`"));
    assert!(refusal(Setting::Retention, "soon").contains("retention must be a time"));
    assert!(refusal(Setting::Retention, "none").contains("retention must be a time"));
    assert!(refusal(Setting::DefaultMemory, "100K").contains("a size of at least 1M"));
    assert!(refusal(Setting::DefaultMemory, "100").contains("write 100M for megabytes"));
    assert!(refusal(Setting::DefaultNodes, "0").contains("a number from 1"));
    assert!(refusal(Setting::UserPriority, "-1").contains("a number from 0 to 2147483647"));
    assert!(refusal(Setting::UserPriority, "2147483648").contains("a number from 0 to 2147483647"));
    assert!(refusal(Setting::Policy, "random").contains("fcfs, easy or greedy"));
    let slower = after(&settings, Setting::LostAfter, "10m").expect("accepted");
    let slower = after(&slower, Setting::DownAfter, "2m").expect("accepted");
    assert_eq!(after(&slower, Setting::SuspectAfter, "90s").map(|it| it.suspect_after_ms), Ok(90_000));
}

#[test]
fn defaults_fill_only_options_that_were_left_out() {
    let chosen = JobSpec::new("x", Work::command(["x"], "/"), Request::new(3, 7 << 20));
    let open = chosen.clone().resized(PartialRequest::default(), None, None, None);
    let usual = Settings::default().complete(open.clone(), WallTime(0));
    assert_eq!((usual.request.clone(), usual.world_size()), (Request::new(1, 512 << 20), 1), "nothing is set");
    assert_eq!(usual.time_limit_ms, None);
    let job = JobDefaults {
        nodes: Some(2),
        tasks_per_node: Some(4),
        cpus: Some(1),
        memory_bytes: Some(1 << 30),
        time_limit_ms: Some(HOUR),
    };
    let settings = Settings { job, ..Settings::default() };
    assert_eq!(settings.complete(chosen.clone().into(), WallTime(0)), chosen);
    let request = PartialRequest { cpus: Some(3), ..PartialRequest::default() };
    let some =
        settings.complete(Submission { request, nodes: Some(1), time_limit_ms: Some(0), ..open.clone() }, WallTime(0));
    assert_eq!((some.request.memory_bytes, some.request.cpus, some.nodes), (1 << 30, 3, 1));
    assert_eq!(some.time_limit_ms, None, "no limit was chosen");
    let all = settings.complete(open.clone(), WallTime(0));
    assert_eq!((all.nodes, all.tasks_per_node, all.request.cpus), (2, 4, 1));
    assert_eq!(all.time_limit_ms, Some(HOUR));
    let terminal = Submission { pty: Some(WindowSize { rows: 24, columns: 80 }), ..open };
    assert_eq!(settings.complete(terminal, WallTime(0)).world_size(), 1);
}

#[test]
fn lines_are_labelled_when_a_job_has_several_processes() {
    let work = Work::command(["x"], "/");
    let asked: Submission = JobSpec { label: true, ..JobSpec::new("x", work, Request::new(1, 1)) }.into();
    let two = Settings { job: JobDefaults { nodes: Some(2), ..JobDefaults::default() }, ..Settings::default() };
    for (settings, nodes, labelled) in [(&Settings::default(), None, false), (&two, None, true), (&two, Some(1), false)]
    {
        let spec = settings.complete(Submission { nodes, ..asked.clone() }, WallTime(0));
        assert_eq!(spec.label, labelled, "{nodes:?}");
    }
}
