"""placeholder"""
import sys, argparse
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent.parent))
from scripts.bench_forecast_disks import child, measure
p = argparse.ArgumentParser()
p.add_argument("--keep", type=Path)
p.add_argument("--visits", default="1,2")
p.add_argument("--child", nargs=4)
o = p.parse_args()
if o.child:
    n, v, f, out = o.child
    child(n, int(v), Path(f), Path(out))
else:
    o.keep.mkdir(parents=True, exist_ok=True)
    measure(o.keep, [int(v) for v in o.visits.split(",")], __file__)
