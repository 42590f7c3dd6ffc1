//! The choice of a node: scores, exclusions, and distribution of commands.

use std::collections::{BTreeMap, BTreeSet};

use hostler_gossip::{
    Calls, Candidate, Incarnation, Load, Member, MemberId, Needs, Node, Policy, Presence, Pressure, Score, Unfit,
    Version, choose, explain,
};
use hostler_model::Timestamp;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(100_000);

/// Nodes as in a table: 8 CPUs, 16 GiB, idle, unless a test changes that.
struct Scene {
    members: Vec<Member>,
    loads: Vec<Option<Load>>,
    presence: Vec<Presence>,
    /// The choosing node, if it is one of the nodes of the scene.
    local: Option<usize>,
    load_seq: u64,
}

impl Scene {
    fn new(size: u32) -> Self {
        let member = |id| Member {
            id: MemberId(id),
            name: format!("n{id}").parse().expect("a name"),
            address: "10.0.0.1:7706".parse().expect("an address"),
            features: if id == 1 { ["ssd".parse().expect("a feature")].into() } else { BTreeSet::new() },
        };
        let commands = "10.0.0.1:7707".parse().expect("an address");
        let load = Some(Load::idle(8, 16 << 10, commands));
        let count = size as usize;
        Self {
            members: (0..size).map(member).collect(),
            loads: vec![load; count],
            presence: vec![Presence::Live; count],
            local: None,
            load_seq: 1,
        }
    }

    fn change(mut self, node: usize, change: impl FnOnce(&mut Load)) -> Self {
        change(self.loads[node].as_mut().expect("the node has a load"));
        self
    }

    fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        let version = Version { incarnation: Incarnation(1), seq: self.load_seq };
        self.members.iter().enumerate().map(move |(at, member)| Node {
            member,
            presence: self.presence[at],
            is_local: self.local == Some(at),
            version,
            load: self.loads[at].as_ref(),
            load_version: version,
            silent_ms: 12_000,
            load_age_ms: 0,
        })
    }

    fn ranked(&self, needs: &Needs, calls: &Calls, random: u64) -> Vec<Candidate> {
        choose(self.nodes(), needs, &Policy::default(), calls, NOW, random)
    }

    fn best(&self) -> u32 {
        self.best_with(&Needs::default())
    }

    fn best_with(&self, needs: &Needs) -> u32 {
        self.ranked(needs, &Calls::default(), 1).first().expect("a node is suitable").id.0
    }

    fn unfit(&self, needs: &Needs, calls: &Calls) -> BTreeMap<String, Unfit> {
        let explanation = explain(self.nodes(), needs, &Policy::default(), calls, NOW, 1);
        explanation.unfit.into_iter().map(|(name, why)| (name.to_string(), why)).collect()
    }
}

fn names(names: &[&str]) -> BTreeSet<hostler_model::NodeName> {
    names.iter().map(|name| name.parse().expect("a name")).collect()
}

#[test]
fn node_with_the_most_free_capacity_is_chosen() {
    let busy = |runnable| move |load: &mut Load| load.runnable = runnable;
    assert_eq!(Scene::new(3).change(0, busy(6)).change(2, busy(3)).best(), 1);
    assert_eq!(Scene::new(3).change(0, busy(8)).change(1, busy(9)).change(2, busy(20)).best(), 0);
    let large = Scene::new(2).change(0, busy(2)).change(1, |load| (load.cpus, load.runnable) = (64, 8));
    let large = large.change(1, |load| load.unallocated_cpus = 64);
    assert_eq!(large.best(), 1, "an eighth of its CPUs is busy, a quarter of the other's");
}

#[test]
fn load_and_memory_weights_apply() {
    let slow = |load: &mut Load| load.load_weight = 200;
    let full = |load: &mut Load| load.runnable = 11;
    assert_eq!(Scene::new(2).change(0, slow).change(1, full).best(), 1, "a factor of 1.5 is less than 2");
    let fuller = |load: &mut Load| load.runnable = 19;
    assert_eq!(Scene::new(2).change(0, slow).change(1, fuller).best(), 0, "a factor of 2.5 is more than 2");
    let used = |load: &mut Load| load.free_memory_mib = 1 << 10;
    let better = |load: &mut Load| load.memory_weight = 300;
    assert_eq!(Scene::new(2).change(0, used).change(1, used).change(1, better).best(), 1);
}

#[test]
fn rank_expression_of_a_call_comes_before_that_of_the_policy_and_before_the_score() {
    let busy = |load: &mut Load| (load.runnable, load.average, load.free_memory_mib) = (20, 300, 15 << 10);
    let small = |load: &mut Load| load.free_memory_mib = 1 << 10;
    let scene = Scene::new(2).change(0, busy).change(1, small);
    assert_eq!(scene.best(), 1);
    let ranked = |rank: &str| Needs { rank: Some(rank.parse().expect(rank)), ..Needs::default() };
    assert_eq!(scene.best_with(&ranked("1 / free_memory")), 0);
    let policy = Policy { rank: Some("1 / free_memory".parse().expect("a rank")), ..Policy::default() };
    let by_policy = |needs: &Needs| {
        choose(scene.nodes(), needs, &policy, &Calls::default(), NOW, 1).first().expect("a node is suitable").clone()
    };
    assert_eq!((by_policy(&Needs::default()).id.0, by_policy(&ranked("load")).id.0), (0, 1));
    let scores = scene.ranked(&ranked("load * load_weight + 2"), &Calls::default(), 1);
    assert_eq!(scores.iter().map(|it| it.score.total).collect::<Vec<_>>(), [2000, 5000]);
    let unfit = scene.unfit(&ranked("load - 1"), &Calls::default());
    assert_eq!(unfit, [("n1".to_owned(), Unfit::Rank("-1".to_owned()))].into(), "n0 is chosen");
    assert_eq!(scene.unfit(&ranked("1 / load"), &Calls::default()).len(), 1, "not finite on an idle node");
}

#[test]
fn resources_held_by_jobs_count_as_used() {
    let held = |load: &mut Load| load.unallocated_cpus = 0;
    assert_eq!(Scene::new(2).change(0, held).best(), 1);
    let held = |load: &mut Load| load.unallocated_memory_mib = 1 << 10;
    let needs = Needs { memory_bytes: 2 << 30, ..Needs::default() };
    let scene = Scene::new(2).change(0, held);
    assert_eq!(scene.best_with(&needs), 1);
    assert_eq!(scene.unfit(&needs, &Calls::default()), [("n0".to_owned(), Unfit::Memory(1 << 30))].into());
}

#[test]
fn pressure_counts_if_known() {
    let pressed = |load: &mut Load| load.pressure = Pressure { io: Some(400), ..Pressure::default() };
    assert_eq!(Scene::new(2).change(0, pressed).best(), 1);
}

#[test]
fn node_that_accepts_no_commands_is_not_chosen() {
    let never = |load: &mut Load| (load.accepts, load.commands) = (false, ([0, 0, 0, 0], 0).into());
    let scene = Scene::new(2).change(0, never);
    assert_eq!(scene.best(), 1);
    let unfit = scene.unfit(&Needs::default(), &Calls::default());
    assert_eq!(unfit, [("n0".to_owned(), Unfit::NeverOpen)].into());
    assert_eq!(Unfit::NeverOpen.to_string(), "the node's agent accepts no commands");
}

#[test]
fn every_unsuitable_node_has_a_reason() {
    let mut scene = Scene::new(9).change(4, |load| load.accepts = false).change(5, |load| load.free_memory_mib = 100);
    scene.presence[2] = Presence::Silent;
    scene.presence[3] = Presence::Unheard;
    scene.loads[6] = None;
    let mut calls = Calls::default();
    calls.unreachable(MemberId(7), &Policy::default(), NOW);
    let needs = Needs {
        memory_bytes: 1 << 30,
        constraint: Some("n0|n2|n3|n4|n5|n6|n7".parse().expect("a constraint")),
        not: names(&["n0"]),
        ..Needs::default()
    };
    let expected = [
        ("n0", Unfit::RuledOut, "the node is excluded"),
        ("n1", Unfit::Features, "the node lacks the requested features"),
        ("n2", Unfit::Silent(12_000), "the node has been silent for 12s"),
        ("n3", Unfit::Unheard, "no message from the node has arrived yet"),
        ("n4", Unfit::Closed, "the node accepts no commands now"),
        ("n5", Unfit::Memory(100 << 20), "the node has only 100M of available memory"),
        ("n6", Unfit::Unknown, "the load of the node is not known yet"),
        ("n7", Unfit::Unreachable, "the node was unreachable a moment ago"),
        ("n8", Unfit::Features, "the node lacks the requested features"),
    ];
    let unfit = scene.unfit(&needs, &calls);
    for (name, why, text) in expected {
        assert_eq!(unfit[name], why);
        assert_eq!(why.to_string(), text);
    }
    assert!(scene.ranked(&needs, &calls, 1).is_empty());
    let named = Needs { only: names(&["n1", "n8"]), ..Needs::default() };
    let unfit = scene.unfit(&named, &Calls::default());
    assert_eq!((unfit.len(), &unfit["n0"]), (7, &Unfit::NotListed));
    assert!([1, 8].contains(&scene.best_with(&named)));
    let ssd = Needs { constraint: Some("ssd".parse().expect("a constraint")), ..Needs::default() };
    assert_eq!(scene.best_with(&ssd), 1);
}

#[test]
fn another_node_must_be_better_by_a_margin() {
    let busy = |runnable| move |load: &mut Load| load.runnable = runnable;
    let local = |mut scene: Scene| {
        scene.local = Some(0);
        scene
    };
    let stays = Needs { prefer_local: true, ..Needs::default() };
    assert_eq!(local(Scene::new(3).change(0, busy(3))).best(), 0, "the local node is fuller, but within the margin");
    let overfull = || local(Scene::new(3).change(0, busy(10)));
    assert_ne!(overfull().best(), 0);
    assert_eq!(overfull().best_with(&stays), 0);
    assert_ne!(local(Scene::new(3).change(0, busy(30))).best_with(&stays), 0, "the preference is limited");
}

#[test]
fn twenty_commands_in_a_second_are_distributed() {
    let scene = Scene::new(4);
    let mut calls = Calls::default();
    let mut sent = BTreeMap::new();
    for random in 0..20 {
        let node = scene.ranked(&Needs::default(), &calls, random * 7919)[0].id;
        *sent.entry(node).or_insert(0) += 1;
        calls.send(node, NOW);
    }
    assert!(sent.len() == 4 && sent.values().all(|count| (4..=6).contains(count)), "{sent:?}");
    let explanation = explain(scene.nodes(), &Needs::default(), &Policy::default(), &calls, NOW, 1);
    assert_eq!(explanation.candidates.iter().map(|candidate| candidate.in_flight).sum::<u64>(), 20);
    let later = explain(scene.nodes(), &Needs::default(), &Policy::default(), &calls, NOW.plus_ms(3000), 1);
    assert!(later.candidates.iter().all(|candidate| candidate.in_flight == 0), "loads include the commands by then");
}

#[test]
fn callers_with_the_same_knowledge_choose_different_nodes() {
    let scene = Scene::new(10);
    let mut sent = BTreeMap::new();
    for caller in 0..1000_u64 {
        let ranked = scene.ranked(&Needs::default(), &Calls::default(), caller.wrapping_mul(0x9E37_79B9));
        let distinct: BTreeSet<_> = ranked.iter().map(|candidate| candidate.id).collect();
        assert_eq!((ranked.len(), distinct.len()), (8, 8), "seven fallbacks");
        *sent.entry(ranked[0].id).or_insert(0) += 1;
    }
    assert!(sent.len() == 10 && sent.values().all(|count| (60..=140).contains(count)), "{sent:?}");
}

#[test]
fn explanation_has_the_parts_of_scores_and_the_reasons_of_unfit_nodes() {
    let mut scene = Scene::new(2).change(0, |load| (load.runnable, load.load_weight) = (11, 150));
    scene.local = Some(0);
    scene.presence[1] = Presence::Silent;
    let explanation = explain(scene.nodes(), &Needs::default(), &Policy::default(), &Calls::default(), NOW, 1);
    let [candidate] = &explanation.candidates[..] else { panic!("{explanation:?}") };
    assert_eq!((candidate.name.as_str(), candidate.is_local, candidate.in_flight), ("n0", true, 0));
    assert_eq!(candidate.score, Score { sharing: 1500, fullness: 250, pressure: 0, memory: 0, total: 2625 });
    let [(name, why)] = &explanation.unfit[..] else { panic!("{explanation:?}") };
    assert_eq!((name.as_str(), why), ("n1", &Unfit::Silent(12_000)));
    assert_eq!(why.to_string(), "the node has been silent for 12s");
}

proptest! {
    /// For all loads, the choice matches the explanation, and nothing overflows.
    #[test]
    fn choices_agree_with_their_explanations(
        loads in proptest::collection::vec(any::<[u32; 10]>(), 1..40),
        random in any::<u64>(),
        local in any::<bool>(),
        memory_bytes in 0_u64..1 << 40,
    ) {
        let mut scene = Scene::new(loads.len() as u32);
        scene.local = local.then_some(0);
        for (load, numbers) in scene.loads.iter_mut().flatten().zip(&loads) {
            let [recent, runnable, cpus, free, memory, free_cpus, unallocated, weight, memory_weight, cpu] = *numbers;
            (load.recent, load.runnable, load.cpus, load.free_memory_mib) = (recent, runnable, cpus, free);
            (load.memory_mib, load.unallocated_cpus, load.unallocated_memory_mib) = (memory, free_cpus, unallocated);
            (load.load_weight, load.memory_weight) = (weight, memory_weight);
            load.pressure.cpu = Some((cpu % 1001) as u16);
        }
        let needs = Needs { memory_bytes, ..Needs::default() };
        let chosen = scene.ranked(&needs, &Calls::default(), random);
        let all = explain(scene.nodes(), &needs, &Policy::default(), &Calls::default(), NOW, random);
        prop_assert_eq!(all.candidates.len() + all.unfit.len(), loads.len());
        prop_assert_eq!(&chosen[..], &all.candidates[..all.candidates.len().min(8)]);
        for candidate in &all.candidates {
            prop_assert!(u64::from(candidate.load.available_memory_mib()) << 20 >= memory_bytes);
        }
    }
}
