"""A user of Locust; with PACE in the environment, so many requests a second."""
import os

from locust import HttpUser, constant_throughput, task


class User(HttpUser):
    pace = float(os.environ.get("PACE", 0))
    if pace:
        wait_time = constant_throughput(pace)

    @task
    def get(self):
        self.client.get("/")
