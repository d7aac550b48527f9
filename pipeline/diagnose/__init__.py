"""``fedagent diagnose``: can what differs between a federation's clients be read, or only felt? Before any training.

Task side: how far the clients' mixtures are apart. Dynamics side: how far their worlds' answers are apart, and which of the three escape
hatches is open (off the path, same ranking, revealed). Knows nothing of configuration files, models or Ray, except in ``command``.
"""

from pipeline.diagnose.diagnosis import Diagnosis, diagnose
from pipeline.diagnose.setup import ClientSetup, Settings, Visit

__all__ = ["ClientSetup", "Diagnosis", "Settings", "Visit", "diagnose"]
