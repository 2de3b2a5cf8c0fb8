//! A report as JSON, for programs.

use serde_json::{Value, json};

use super::Report;

// === impl Report ===

impl Report {
    /// Everything but the workers' logs. Times are in seconds from the start of the run, where a key does not say that
    /// they are in milliseconds.
    pub fn json(&self) -> Value {
        let actions = self.actions.iter().map(|(action, count)| ((*action).to_owned(), Value::from(*count)));
        let events = self.events.iter().map(|event| {
            json!({
                "what": event.what, "worker": event.whom, "shard": event.shard, "note": event.note,
                "from": event.from.as_secs_f64(), "until": event.until.as_secs_f64(),
            })
        });
        let lives = self.lives.iter().map(|life| {
            json!({
                "name": life.name, "post": life.post, "build": life.build,
                "from": life.from.as_secs_f64(), "until": life.until.as_secs_f64(),
            })
        });
        json!({
            "seed": self.seed,
            "temper": self.temper.name(),
            "seconds": self.length.as_secs_f64(),
            "took": self.took.as_secs_f64(),
            "began_at_ms": self.began_at,
            "records": {
                "written": self.written,
                "perhaps_twice_in_the_input": self.unclear,
                "out": self.records,
                "dead_letters": self.letters,
                "lost": self.lost(),
            },
            "repeats": {
                "records": self.repeated(),
                "sent_again_by_the_same_worker": self.sent_again,
                "perhaps_twice_in_the_input": self.repeated_input,
                "letters": self.causes.letters(),
                "causes": self.causes.causes,
                "unexplained": self.causes.unexplained,
                "unexplained_letters": self.causes.unexplained_letters,
            },
            "leases": self.leases.map(|leases| json!({
                "taken": leases.takes,
                "taken_from_who_had_not_let_go": self.lapses,
                "late_requests": leases.late,
            })),
            "longest": {
                "from_input_to_output_ms": self.delay.time,
                "between_two_new_records_of_a_key_ms": self.silence.time,
            },
            "broken": self.violations.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "actions": actions.collect::<serde_json::Map<_, _>>(),
            "events": events.collect::<Vec<_>>(),
            "workers": lives.collect::<Vec<_>>(),
            "curves": { "every": self.curves.every.as_secs_f64(), "points": self.curves.points },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;

    #[test]
    fn a_program_finds_the_account_every_event_and_the_curves() {
        let report = samples::report();
        let json = report.json();
        assert_eq!(
            json["records"],
            serde_json::json!({
                "written": 1_000, "perhaps_twice_in_the_input": 0, "out": 990, "dead_letters": 10, "lost": 0,
            })
        );
        assert_eq!((&json["repeats"]["records"], &json["repeats"]["causes"][0]["at_risk"]), (&10.into(), &12.into()));
        let events = json["events"].as_array().unwrap();
        assert_eq!(events.len(), report.events.len());
        assert_eq!(
            (&events[0]["what"], &events[0]["worker"], &events[0]["from"]),
            (&"kill".into(), &"worker-1.1".into(), &5.0.into())
        );
        assert_eq!(json["curves"]["points"][1]["behind"], 120);
        assert_eq!(json["workers"].as_array().unwrap().len(), 3);
        assert!(json["broken"].as_array().unwrap().is_empty() && !json["leases"].is_null());
    }
}
