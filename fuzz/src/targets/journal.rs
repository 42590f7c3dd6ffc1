//! A run's journal, in any state that a power failure or a full disk can leave.

use hostler_shepherd::fuzzing;

use crate::Target;

pub(crate) const TARGET: Target = Target { name: "journal", about: "damaged journals of runs", run, seeds };

fn run(bytes: &[u8]) {
    fuzzing::journal(bytes);
}

fn seeds() -> Vec<Vec<u8>> {
    let taken = r#"{"taken":{"shepherd":{"pid":1,"start_time":2},"boot_id":"b","socket":"s","identity":"7.1","taken":{"boottime_ns":3,"unix_ms":4},"leaf":null,"child":null}}"#;
    let launch = r#"{"launch":{"identity":"7.1","note":[1,{"a":"b"}]}}"#;
    let story = format!("{launch}\n{taken}\n{{\"started\":9}}\n\n\n");
    let void = format!("{launch}\n\"void\"\n");
    let newer = format!("{launch}\n{{\"paused\":{{}}}}\n\0\0{taken}\n");
    [story, void, newer].map(String::into_bytes).to_vec()
}
