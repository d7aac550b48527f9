"""``fedagent reproduce``: the arms of an argument as data, run by a pool of workers, and their numbers in one small file.

``results`` is the file, ``statistics`` what is said of it over seeds, ``arms`` what is run, ``floors`` what any shared policy could reach
there, ``extract`` from a run's log to the numbers, ``runner``, ``pool`` and ``work`` the doing. Importing this costs nothing.
"""
