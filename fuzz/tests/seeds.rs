//! Every target must handle its own seeds: complete, truncated, and with single bytes changed.

use hostler_fuzz::TARGETS;

#[test]
fn targets_handle_intact_and_damaged_seeds() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        (target.run)(b"");
        for seed in seeds {
            (target.run)(&seed);
            for cut in (0..seed.len()).step_by(1 + seed.len() / 16) {
                (target.run)(&seed[..cut]);
                let mut damaged = seed.clone();
                damaged[cut] ^= 0x81;
                (target.run)(&damaged);
            }
        }
    }
}

#[test]
fn names_are_unique() {
    let names: std::collections::BTreeSet<_> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names.len(), TARGETS.len());
    assert!(names.iter().all(|name| hostler_fuzz::target(name).is_some()));
}
