//! The fuzzer: libFuzzer on the target that `HOSTLER_FUZZ_TARGET` names. One program for all, since linking is what takes long.

#![no_main]

use std::sync::OnceLock;

use hostler_fuzz::Target;

fn target() -> &'static Target {
    static TARGET: OnceLock<&Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("HOSTLER_FUZZ_TARGET").expect("`cargo xtask fuzz` names a target");
        hostler_fuzz::target(&name).unwrap_or_else(|| panic!("there is no target {name}"))
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target().run)(bytes));
