//! A body against a [`Plan`], without a tree of the body.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::condition::Scalar;
use crate::number::Number;
use crate::plan::{Node, Plan};
use crate::state::State;

/// The states of the plan's goals for a body. It is read to its end: what is not JSON behind a match is no JSON.
pub(crate) fn scan(plan: &Plan, body: &str) -> Result<Vec<State>, serde_json::Error> {
    let absent = plan.all_absent();
    // Arrays put states of their own behind those of the goals.
    let mut states = Vec::with_capacity(2 * absent.len());
    states.extend_from_slice(absent);
    let mut json = serde_json::Deserializer::from_str(body);
    Field { plan, node: plan.node(0), states: &mut states }.deserialize(&mut json)?;
    json.end()?;
    states.truncate(absent.len());
    Ok(states)
}

/// A field that some pattern names. When it has been read, the slots of its node hold the states of its goals; those of
/// nodes in it hold whatever.
struct Field<'s, 'p> {
    plan: &'p Plan,
    node: &'p Node,
    states: &'s mut Vec<State>,
}

/// The name of a field, which becomes the index of its node if some pattern names it.
struct Name<'p>(&'p Node);

// === impl Field ===

impl Field<'_, '_> {
    fn value(self, value: &Scalar<'_>) {
        self.node.match_value(value, self.states, self.plan);
    }
}

impl<'de> DeserializeSeed<'de> for Field<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Field<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.value(&Scalar::Null);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.value(&Scalar::Bool(value));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.value(&Scalar::Number(value.into()));
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.value(&Scalar::Number(value.into()));
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.value(&Scalar::Number(Number::double(value)));
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.value(&Scalar::Text(text.as_bytes()));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        let Self { plan, node, states } = self;
        let slots = node.slots();
        let first = states.len();
        states.extend_from_slice(plan.absent(slots.clone()));
        while array.next_element_seed(Field { plan, node, states })?.is_some() {
            for (sum, slot) in (first..).zip(slots.clone()) {
                states[sum] = states[sum].beside(states[slot]);
            }
        }
        states.copy_within(first..first + slots.len(), slots.start);
        states.truncate(first);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let Self { plan, node, states } = self;
        let fields = node.child_slots();
        states[fields.clone()].copy_from_slice(plan.absent(fields));
        while let Some(child) = object.next_key_seed(Name(node))? {
            match child {
                // A field that is there twice overwrites what it was: the last one counts.
                Some(child) => object.next_value_seed(Field { plan, node: plan.node(child), states })?,
                None => {
                    object.next_value::<IgnoredAny>()?;
                }
            }
        }
        node.match_object(states, plan);
        Ok(())
    }
}

// === impl Name ===

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a field's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.child(name))
    }
}
