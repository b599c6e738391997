# The public surface: names that scripts and notebooks may rely on, with the modules that define them.
from corpus.book import chunk_book as chunk_book
from corpus.book import read_book as read_book
from flows.launch import StartedRun as StartedRun
from flows.launch import follow as follow
from flows.launch import resume as resume
from flows.launch import start as start
from flows.scoring import score_questions as score_questions
from flows.studies import study_prediction as study_prediction
from infuser_core.algorithm.advantage import dugrpo_advantages as dugrpo_advantages
from infuser_core.algorithm.influence import influence_score as influence_score
from infuser_core.errors import InfuserError as InfuserError
from infuser_core.evaluation.judge import judge as judge
from infuser_core.evaluation.judge import judge_all as judge_all
from infuser_core.results.export.export import export as export
from infuser_core.results.reader import RunReader as RunReader
from infuser_core.results.reader import StoreReader as StoreReader
from infuser_core.results.reader import open_store as open_store
