//! The fuzzer: runs libFuzzer on the target in `HOSTLER_FUZZ_TARGET`. One program has all targets, because linking is
//! slow.

#![no_main]

use std::sync::OnceLock;

use hostler_fuzz::Target;

fn target() -> &'static Target {
    static TARGET: OnceLock<&Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("HOSTLER_FUZZ_TARGET").expect("`cargo xtask fuzz` sets the target");
        hostler_fuzz::target(&name).unwrap_or_else(|| panic!("there is no target {name}"))
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target().run)(bytes));
