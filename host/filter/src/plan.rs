//! All patterns on bodies as one tree, so that a body is read once whatever the number of patterns.
//!
//! A node stands for a field that some pattern names, where it stands in the body; arrays are not seen. Of each field
//! there is asked what the patterns' lists and objects at this field say: its goals. Each goal has one slot for its
//! state. Nodes are numbered level by level, so that the slots of a node's children are side by side.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::condition::{Conditions, Scalar};
use crate::pattern::{Fields, Rule};
use crate::state::State;

#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    nodes: Vec<Node>,
    /// The states of all goals for a body that has no fields.
    absent: Vec<State>,
}

/// A field.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The names of the fields in it that matter, sorted. Their nodes come one after another.
    names: Vec<Box<str>>,
    first_child: usize,
    /// Goals that ask for a value.
    values: Vec<Conditions>,
    /// Goals that ask for an object.
    objects: Vec<Needs>,
    /// Of its goals: values first, then objects.
    slots: Range<usize>,
    child_slots: Range<usize>,
}

/// What must hold for an object: the goals of its fields, and of each of the lists one.
#[derive(Debug, Clone)]
struct Needs {
    slots: Vec<usize>,
    or: Vec<Vec<Needs>>,
}

/// Collects patterns.
#[derive(Debug)]
pub(crate) struct Builder {
    drafts: Vec<Draft>,
}

/// A node while patterns are being added.
#[derive(Debug, Default)]
struct Draft {
    children: BTreeMap<String, usize>,
    values: Vec<Conditions>,
    objects: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    goals: Vec<Goal>,
    or: Vec<Vec<Group>>,
}

/// A goal before it has a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    draft: usize,
    kind: GoalKind,
}

#[derive(Debug, Clone, Copy)]
enum GoalKind {
    Value(usize),
    Object(usize),
}

// === impl Builder ===

impl Builder {
    pub(crate) fn new() -> Self {
        Self { drafts: vec![Draft::default()] }
    }

    /// Adds what a pattern asks of bodies.
    pub(crate) fn add(&mut self, fields: Fields) -> Goal {
        self.object(0, fields)
    }

    fn object(&mut self, draft: usize, fields: Fields) -> Goal {
        let group = self.group(draft, fields);
        let objects = &mut self.drafts[draft].objects;
        objects.push(group);
        Goal { draft, kind: GoalKind::Object(objects.len() - 1) }
    }

    fn group(&mut self, draft: usize, fields: Fields) -> Group {
        let goals = fields.fields.into_iter().map(|(name, rule)| {
            let child = self.child(draft, name);
            match rule {
                Rule::Object(fields) => self.object(child, fields),
                Rule::Value(conditions) => {
                    let values = &mut self.drafts[child].values;
                    values.push(conditions);
                    Goal { draft: child, kind: GoalKind::Value(values.len() - 1) }
                }
            }
        });
        let goals = goals.collect();
        let mut branches =
            |branches: Vec<Fields>| branches.into_iter().map(|fields| self.group(draft, fields)).collect();
        let or = fields.or.into_iter().map(&mut branches).collect();
        Group { goals, or }
    }

    fn child(&mut self, draft: usize, name: String) -> usize {
        let next = self.drafts.len();
        let child = *self.drafts[draft].children.entry(name).or_insert(next);
        if child == next {
            self.drafts.push(Draft::default());
        }
        child
    }

    /// The plan, and what finds the slot of a goal that [`Builder::add`] has returned.
    pub(crate) fn finish(self) -> (Plan, impl Fn(Goal) -> usize) {
        let (order, slots) = self.number();
        let first_values: Vec<usize> = self.drafts.iter().map(|draft| draft.values.len()).collect();
        let slots_of = slots.clone();
        let slot = move |goal: Goal| match goal.kind {
            GoalKind::Value(index) => slots_of[goal.draft].start + index,
            GoalKind::Object(index) => slots_of[goal.draft].start + first_values[goal.draft] + index,
        };
        let mut drafts: Vec<Option<Draft>> = self.drafts.into_iter().map(Some).collect();
        let mut plan = Plan::default();
        // The first child of a node is the first one that no earlier node has.
        let (mut next_child, mut next_slot) = (1, slots[0].end);
        for draft_index in order {
            let Some(draft) = drafts[draft_index].take() else { continue };
            let first_child = next_child;
            let first_slot = next_slot;
            next_child += draft.children.len();
            next_slot += draft.children.values().map(|child| slots[*child].len()).sum::<usize>();
            plan.nodes.push(Node {
                names: draft.children.into_keys().map(String::into_boxed_str).collect(),
                first_child,
                values: draft.values,
                objects: draft.objects.into_iter().map(|group| group.resolve(&slot)).collect(),
                slots: slots[draft_index].clone(),
                child_slots: first_slot..next_slot,
            });
        }
        plan.absent = vec![State::Fails; next_slot];
        // What a node's goals are without the field depends on its children's, which come after it.
        for node in plan.nodes.iter().rev() {
            let states = node.absence(&plan.absent);
            plan.absent[node.slots.clone()].copy_from_slice(&states);
        }
        (plan, slot)
    }

    /// The drafts level by level, and the slots of each draft.
    fn number(&self) -> (Vec<usize>, Vec<Range<usize>>) {
        let (mut order, mut slots, mut next) = (vec![0], vec![0..0; self.drafts.len()], 0);
        let mut at = 0;
        while let Some(&index) = order.get(at) {
            let draft = &self.drafts[index];
            let goals = draft.values.len() + draft.objects.len();
            slots[index] = next..next + goals;
            next += goals;
            order.extend(draft.children.values());
            at += 1;
        }
        (order, slots)
    }
}

// === impl Group ===

impl Group {
    fn resolve(self, slot: &impl Fn(Goal) -> usize) -> Needs {
        let branch = |branches: Vec<Group>| branches.into_iter().map(|group| group.resolve(slot)).collect();
        Needs { slots: self.goals.into_iter().map(slot).collect(), or: self.or.into_iter().map(branch).collect() }
    }
}

// === impl Needs ===

impl Needs {
    fn state(&self, states: &[State]) -> State {
        let mut state = State::Absent;
        for slot in &self.slots {
            state = state.and(states[*slot]);
            if state == State::Fails {
                return state;
            }
        }
        for branches in &self.or {
            let best = branches.iter().map(|needs| needs.state(states)).fold(State::Fails, State::or);
            state = state.and(best);
        }
        state
    }
}

// === impl Plan ===

impl Plan {
    /// Whether no pattern asks for anything in a body.
    pub(crate) fn is_empty(&self) -> bool {
        self.absent.is_empty()
    }

    pub(crate) fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// The states of these goals where there is no field, and so nothing in it.
    pub(crate) fn absent(&self, slots: Range<usize>) -> &[State] {
        &self.absent[slots]
    }

    /// The states of all goals for a body that has no fields.
    pub(crate) fn all_absent(&self) -> &[State] {
        &self.absent
    }
}

// === impl Node ===

impl Node {
    /// The node of a field in this one, if it matters.
    pub(crate) fn child(&self, name: &str) -> Option<usize> {
        let place = self.names.binary_search_by(|one| (**one).cmp(name)).ok()?;
        Some(self.first_child + place)
    }

    pub(crate) fn slots(&self) -> Range<usize> {
        self.slots.clone()
    }

    pub(crate) fn child_slots(&self) -> Range<usize> {
        self.child_slots.clone()
    }

    /// The field is a value that is neither an object nor a list: what is asked of objects is asked of one without
    /// fields.
    pub(crate) fn match_value(&self, value: &Scalar<'_>, states: &mut [State], plan: &Plan) {
        let (values, objects) = states[self.slots()].split_at_mut(self.values.len());
        for (state, conditions) in values.iter_mut().zip(&self.values) {
            *state = conditions.match_value(value);
        }
        objects.copy_from_slice(&plan.absent(self.slots())[self.values.len()..]);
    }

    /// The field is an object, and the states of the fields in it are known. An object is no value.
    pub(crate) fn match_object(&self, states: &mut [State], plan: &Plan) {
        let first = self.slots.start + self.values.len();
        states[self.slots.start..first].copy_from_slice(plan.absent(self.slots.start..first));
        for (index, needs) in self.objects.iter().enumerate() {
            states[first + index] = needs.state(states);
        }
    }

    fn absence(&self, absent: &[State]) -> Vec<State> {
        let values = self.values.iter().map(Conditions::match_absence);
        values.chain(self.objects.iter().map(|needs| needs.state(absent))).collect()
    }
}
