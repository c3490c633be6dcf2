"""The examples of jostled/clients/README.md, as they stand."""

import re
import unittest

from service import ROOT, Daemon


class Examples(unittest.TestCase):
    def test_the_examples_run(self):
        daemon = Daemon()
        self.addCleanup(daemon.close)
        written, stopped = [], []
        names = {
            "work": [1, 2, 3],
            "write": lambda part, token: written.append((part, token)),
            "stop": lambda: stopped.append(True),
        }
        text = (ROOT / "jostled/clients/README.md").read_text()
        examples = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
        self.assertEqual(len(examples), 2)
        for example in examples:
            self.assertIn("Locks(" if example is examples[0] else "session(", example)
            example = example.replace("redis://127.0.0.1:2626", daemon.url)
            # A machine that stands still ends none of these leases.
            exec(re.sub(r"(timeout|ttl)_s=\d+", r"\1_s=600", example), names)
        self.assertEqual(
            [part for part, _ in written], [1, 2, 3, "report", "transfer", 1, 2, 3]
        )
        tokens = [token for _, token in written]
        self.assertEqual(tokens, sorted(tokens))
        self.assertEqual(stopped, [])
        daemon.settles()


if __name__ == "__main__":
    unittest.main()
