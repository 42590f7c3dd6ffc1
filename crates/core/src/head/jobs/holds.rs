//! Holds: of whole jobs, and of single tasks of an array.
//!
//! A hold of the whole job also covers tasks that wait again later. The release of one task turns such a hold into holds of
//! the other tasks.

use hostler_model::IndexSet;

use super::job::{HeldTasks, Job};

/// Who may release a held job or task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// The owner, and operators.
    ByOwner,
    /// Only operators.
    ByOperator,
}

impl Job {
    /// Returns the hold on a task, whether the whole job is held or only the task.
    #[must_use]
    pub fn hold_of(&self, index: u32) -> Option<Hold> {
        let of = |by_operator| if by_operator { Hold::ByOperator } else { Hold::ByOwner };
        let task = self.held_tasks.as_ref().filter(|held| held.tasks.contains(index));
        let task = task.map(|held| of(held.by_operator.contains(index)));
        task.max(self.held.then_some(of(self.held_by_operator)))
    }

    /// Returns the hold on a task, or on the whole job.
    pub(in crate::head) fn hold_on(&self, index: Option<u32>) -> Option<Hold> {
        match index {
            Some(index) => self.hold_of(index),
            None if self.held && self.held_by_operator => Some(Hold::ByOperator),
            None => self.held.then_some(Hold::ByOwner),
        }
    }

    /// Returns the tasks that an operator holds, although the whole job is not held by an operator.
    pub(in crate::head) fn tasks_held_by_operator(&self) -> IndexSet {
        self.held_tasks.as_ref().map(|held| held.by_operator.clone()).unwrap_or_default()
    }

    /// Returns whether the owner holds the whole job or any of its tasks.
    pub(in crate::head) fn is_held_by_owner(&self) -> bool {
        let holds_a_task = self.held_tasks.as_ref().is_some_and(|held| held.tasks != held.by_operator);
        (self.held && !self.held_by_operator) || holds_a_task
    }

    /// Returns the waiting tasks that are not held.
    pub(in crate::head) fn free_tasks(&self) -> IndexSet {
        match &self.held_tasks {
            _ if self.held => IndexSet::default(),
            Some(held) => self.pending.difference(&held.tasks),
            None => self.pending.clone(),
        }
    }

    /// Returns the number of waiting tasks that neither are held nor wait for other jobs.
    pub(in crate::head) fn free_len(&self) -> u64 {
        match &self.held_tasks {
            _ if self.held => 0,
            Some(held) => self.independent().difference(&held.tasks).len(),
            None => self.independent().len(),
        }
    }

    /// Returns the lowest task from `from` on that waits for no other job and is not held on its own.
    pub(in crate::head) fn next_free(&self, from: u32) -> Option<u32> {
        let mut from = from;
        loop {
            let index = self.independent().next_from(from)?;
            match self.held_tasks.as_ref().map(|held| held.tasks.next_gap_from(index)) {
                Some(free) if free > index => from = free,
                _ => return Some(index),
            }
        }
    }

    /// Holds one task, or the whole job. A hold of an operator stays one.
    pub(in crate::head) fn hold(&mut self, index: Option<u32>, by_operator: bool) {
        match index.filter(|_| self.spec.array.is_some()) {
            None => {
                self.held = true;
                self.held_by_operator |= by_operator;
            }
            Some(index) => {
                let held = self.held_tasks.get_or_insert_default();
                held.tasks.insert(index);
                if by_operator {
                    held.by_operator.insert(index);
                }
            }
        }
    }

    /// Releases one task, or the whole job with its tasks: all of them, or those that no operator holds.
    pub(in crate::head) fn release(&mut self, index: Option<u32>, keeps_operators: bool) {
        let Some(index) = index.filter(|_| self.spec.array.is_some()) else {
            let kept = if keeps_operators { self.tasks_held_by_operator() } else { IndexSet::default() };
            let kept = (!kept.is_empty()).then(|| Box::new(HeldTasks { tasks: kept.clone(), by_operator: kept }));
            (self.held, self.held_by_operator, self.held_tasks) = (false, false, kept);
            return;
        };
        if self.held {
            let all = self.indices();
            let held = self.held_tasks.get_or_insert_default();
            if self.held_by_operator {
                held.by_operator.add_all(&all);
            }
            held.tasks = all;
            (self.held, self.held_by_operator) = (false, false);
        }
        if let Some(held) = &mut self.held_tasks {
            held.tasks.remove(index);
            held.by_operator.remove(index);
            if held.tasks.is_empty() {
                self.held_tasks = None;
            }
        }
    }
}
