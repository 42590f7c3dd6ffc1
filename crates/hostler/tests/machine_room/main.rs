//! A head switches six machines through their controllers: a burst of jobs, faults of controllers and machines, and
//! ten crashes of the head meanwhile.
//!
//! Each run prints a timeline and writes it to `target/tmp`. To see all, run `cargo nextest run -E
//! 'binary(machine_room)' --success-output final`.

mod bmcs;
mod ipmi;
mod redfish;
mod room;
mod timeline;
mod wake_on_lan;

use std::sync::Arc;

use bmcs::{Bmcs, Fault};
use hostler_model::Attempt;
use ipmi::{EmulatorKind, Ipmi};
use redfish::Redfish;
use room::Room;

#[test]
fn redfish_machines_follow_the_queue_despite_faults() {
    walk(Room::new("redfish", |host, head, names| Arc::new(Redfish::start(host, head, names)) as Arc<dyn Bmcs>));
}

#[test]
fn machines_of_ipmi_sim_follow_the_queue_despite_faults() {
    walk(Room::new("ipmi_sim", |host, head, names| Arc::new(Ipmi::start(EmulatorKind::Sim, host, head, names))));
}

#[test]
fn machines_of_fakebmc_follow_the_queue_despite_faults() {
    walk(Room::new("fakebmc", |host, head, names| Arc::new(Ipmi::start(EmulatorKind::Fake, host, head, names))));
}

/// In each part, the head is killed twice.
fn walk(mut room: Room) {
    room.hand_over();
    room.all_go_off();
    let parts = [
        a_burst_wakes_as_many_as_it_needs,
        a_job_comes_when_a_machine_is_going_off,
        machines_come_and_go_by_themselves,
        controllers_are_spoilt,
        an_agent_never_comes,
    ];
    for part in parts {
        let kills = room.kill_the_head(2);
        part(&room);
        kills.join().expect("the head can be started again");
    }
    let starts = room.all_go_off();
    assert!(starts.values().all(|starts| *starts == 0), "no machine may start without need: {starts:?}");
}

fn a_burst_wakes_as_many_as_it_needs(room: &Room) {
    let jobs: Vec<String> = (0..6).map(|_| room.submit("burst", &[])).collect();
    room.all_run(&jobs);
    room.open("burst");
    room.all_done(&jobs);
    let starts = room.all_go_off();
    assert_eq!(starts.into_values().collect::<Vec<_>>(), [1, 1, 1, 0, 0, 0], "the three cheapest, with two CPUs each");
}

fn a_job_comes_when_a_machine_is_going_off(room: &Room) {
    let is_any = |state: &str| room.power().values().any(|power| power == state);
    room.open("now");
    loop {
        let first = room.submit("now", &[]);
        room.all_done(&[first]);
        room.wait("a machine to be going off", 90, || is_any("stopping") || !is_any("idle") && !is_any("up"));
        // If the head was down at that time, the machine may be off already; try again.
        if is_any("stopping") {
            break;
        }
    }
    let second = room.submit("now", &[]);
    room.all_done(&[second]);
    room.all_go_off();
}

fn machines_come_and_go_by_themselves(room: &Room) {
    room.press("r6", true);
    room.wait("the head to know of it", 60, || room.power()["r6"] != "off");
    let starts = room.all_go_off();
    assert_eq!(starts.into_values().collect::<Vec<_>>(), [0, 0, 0, 0, 0, 1]);

    let job = room.submit("again", &["--requeue"]);
    let nodes = room.all_run(std::slice::from_ref(&job));
    room.press(&nodes[0], false);
    room.wait("the job to be tried again", 120, || room.job(&job).attempt == Attempt(2));
    room.open("again");
    room.all_done(std::slice::from_ref(&job));
    room.all_go_off();
}

fn controllers_are_spoilt(room: &Room) {
    let faults = [Fault::Silent, Fault::Busy, Fault::WrongPassword, Fault::Idle];
    let spoilt: Vec<&str> = ["r1", "r2", "r3", "r4"]
        .into_iter()
        .zip(faults)
        .filter_map(|(machine, fault)| room.spoil(machine, fault).then_some(machine))
        .collect();
    // As many jobs as there are machines without a fault.
    let jobs: Vec<String> = (0..2 * (6 - spoilt.len())).map(|_| room.submit("found", &[])).collect();
    room.all_run(&jobs);
    // Jobs for all machines, so that each fault is detected.
    let more: Vec<String> = (0..2 * spoilt.len()).map(|_| room.submit("found", &[])).collect();
    let is_known = |machine: &&str| {
        room.timeline.tells(&[&format!("the head: {machine} is failed"), "could not be switched"])
            || room.timeline.tells(&[&format!("the head: {machine} is failed"), "still off"])
    };
    room.wait("all that is wrong to be known", 200, || spoilt.iter().all(is_known));
    spoilt.iter().for_each(|machine| room.mend(machine));
    // Machines that had failed are tried again.
    room.all_run(&more);
    room.open("found");
    room.all_done(&[jobs, more].concat());
    let starts = room.all_go_off();
    assert!(starts.values().all(|starts| *starts == 1), "all of them were needed: {starts:?}");
}

fn an_agent_never_comes(room: &Room) {
    room.stick("r1", true);
    let job = room.submit("now", &[]);
    room.all_done(&[job]);
    room.stick("r1", false);
    let starts = room.all_go_off();
    assert!(starts["r1"] == 1 && starts["r2"] == 1 && starts.values().sum::<u32>() == 2, "{starts:?}");
    assert!(room.timeline.tells(&["r1 is failed", "its agent has not connected"]));
}
