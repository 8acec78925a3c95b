# SPDX-License-Identifier: Apache-2.0
"""Optimisers that ask and tell, Optuna, and the environment of gymnasium."""

import importlib.util
import math
import unittest
import warnings

import common
import metronome

SPACE = {"scheduler.max_num_batched_tokens": metronome.Range(128, 4096, log=True)}
SMALL = {"workload.num_requests": 60}


def has(package):
    return importlib.util.find_spec(package) is not None


def problem(**options):
    return metronome.Problem("quickstart", SPACE, variant="budget-1024", sets=SMALL,
                             **{"minimise": "p99_itl_ms", **options})


class Asked(common.InFolder):
    def test_ask_and_tell(self):
        one = problem()
        for _ in range(6):
            point = one.ask()
            self.assertEqual(one.tell(point, one.evaluate(point)), point.figures["p99_itl_ms"])
        budgets = [point.values["scheduler.max_num_batched_tokens"] for point in one.points]
        self.assertEqual(len(set(budgets)), 6)
        self.assertTrue(all(128 <= budget <= 4096 for budget in budgets))
        self.assertEqual(one.best.value, min(point.value for point in one.points))
        # The figures are those of the run itself.
        run = metronome.run("quickstart", {
            **SMALL, "variants.budget-1024.scheduler.max_num_batched_tokens": budgets[0]},
            variants="budget-1024").only
        self.assertEqual(one.points[0].figures, run.summary)
        again = problem()
        self.assertEqual([again.ask().values for _ in range(6)],
                         [point.values for point in one.points])

    def test_limits_and_bad_points(self):
        one = problem(limits={"p99_ttft_ms": 0.001})
        self.assertEqual(one.try_point(one.ask()), math.inf)
        self.assertIn("p99_ttft_ms", one.points[0].problem)
        self.assertIsNone(one.best)
        bad = metronome.Problem("quickstart", {"engine.max_num_seqs": [0, 16]}, sets=SMALL,
                                maximise="output_throughput", variant="budget-1024")
        values = [bad.try_point(bad.ask()) for _ in range(4)]
        self.assertIn(-math.inf, values)
        self.assertEqual(bad.best.values, {"engine.max_num_seqs": 16})
        wrong = metronome.Problem("quickstart", {"engine.max_seqs": [1]}, minimise="p99_itl_ms",
                                  variant="budget-1024")
        with self.assertRaisesRegex(metronome.ScenarioError, "unknown key"):
            wrong.try_point(wrong.ask())
        with self.assertRaisesRegex(metronome.ArgumentError, "no such figure; allowed: .*p99_itl"):
            other = problem(minimise="p99_itl")
            other.try_point(other.ask())
        with self.assertRaisesRegex(metronome.ArgumentError, "one of them"):
            problem(maximise="goodput")

    def test_ranges_are_filled_evenly(self):
        whole = metronome.Range(1, 4)
        counts = [0] * 5
        for i in range(1000):
            counts[whole.at((i + 0.5) / 1000)] += 1
        self.assertEqual(counts, [0, 250, 250, 250, 250])
        self.assertEqual(metronome.Range(1.0, 100.0, log=True).at(0.5), 10.0)
        with self.assertRaisesRegex(metronome.ArgumentError, "no range"):
            metronome.Range(0, 8, log=True)

    def test_seeds(self):
        one = problem(seeds=2)
        point = one.ask()
        mean = one.evaluate(point)["mean_ttft_ms"]
        key = "variants.budget-1024.scheduler.max_num_batched_tokens"
        sets = {**SMALL, key: point.values["scheduler.max_num_batched_tokens"]}
        first = metronome.run("quickstart", sets, variants="budget-1024").only
        second = metronome.run("quickstart", sets, variants="budget-1024",
                               seed=first.config["seed"] + 1).only
        each = [result.summary["mean_ttft_ms"] for result in (first, second)]
        self.assertEqual(mean, sum(each) / 2)
        self.assertNotEqual(*each)

    @unittest.skipUnless(has("optuna"), "needs Optuna")
    def test_optuna(self):
        import optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        one = problem()
        study = optuna.create_study(direction=one.direction,
                                    sampler=optuna.samplers.TPESampler(seed=1))
        study.optimize(one, n_trials=8)
        self.assertEqual(study.best_value, one.best.value)
        self.assertEqual(study.best_params, one.best.values)
        trial = study.ask(one.distributions())
        study.tell(trial, one.evaluate(trial.params)["p99_itl_ms"])
        self.assertEqual(len(study.trials), 9)


@unittest.skipUnless(has("gymnasium"), "needs gymnasium")
class Environment(common.InFolder):
    def make(self, **options):
        from metronome.environment import SchedulerEnv
        return SchedulerEnv("quickstart", SMALL, variant="budget-1024", **options)

    def episode(self, env, action, seed=1):
        observation, _ = env.reset(seed=seed)
        total, is_over, steps = 0.0, False, 0
        while not is_over:
            self.assertTrue(env.observation_space.contains(observation))
            observation, reward, is_over, is_cut, info = env.step(action)
            self.assertFalse(is_cut)
            total += reward
            steps += 1
        return total, steps, info["result"]

    def test_checker(self):
        from gymnasium.utils.env_checker import check_env
        warnings.simplefilter("ignore")  # an unlimited Box, and no spec
        env = self.make()
        check_env(env, skip_render_check=True)
        env.close()

    def test_a_fixed_budget_is_the_policy(self):
        """Prompts get 512 tokens a step, beside the decodes."""
        env = self.make(budgets=(512,), cost=lambda ms, decodes, waiting: ms)
        total, steps, result = self.episode(env, 0)
        config = dict(result.config)

        @metronome.register
        class Same(metronome.Policy):
            """512 prompt tokens beside the decodes"""

            name = "same_as_environment"

            def fill(self, books):
                books.plan_decodes()
                left = 512
                for request in books.unfinished_prefills():
                    chunk = min(left, request.uncomputed_tokens)
                    if chunk > 0 and request.state == "prefill":
                        left -= chunk * books.plan_prefill(request, chunk)
                while left > 0 and (head := books.next_waiting()) is not None:
                    chunk = min(left, books.uncomputed_tokens(head))
                    if not books.admit(head, chunk):
                        return
                    left -= chunk

        config["scheduler"] = {"policy": "same_as_environment"}
        other = metronome.run(config, seed=1).only
        self.assertEqual(result.digest, other.digest)
        self.assertLessEqual(steps, other.summary["num_steps"])
        # The cost adds up the times between plans.
        times = other.steps["planned_ns"]
        self.assertAlmostEqual(-total, (times[-1] - times[0]) / 1e6, delta=1e-3 * -total)
        self.assertEqual(self.episode(env, 0)[0], total)

    def test_admissions_and_reset(self):
        env = self.make(budgets=(0, 256), admissions=(0, 1))
        self.assertEqual(env.action_space.nvec.tolist(), [2, 2])
        idle = self.episode(env, [0, 0])[2]  # prompts are computed where nobody decodes
        self.assertEqual(idle.summary["completed"], 60)
        env.reset(seed=2)
        env.step([1, 1])
        env.reset(seed=3)  # leaves the run before
        env.close()
        with self.assertRaisesRegex(RuntimeError, "reset"):
            env.step([1, 1])


if __name__ == "__main__":
    unittest.main()
