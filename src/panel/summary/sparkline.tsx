import * as React from 'react';
import type { ISpark } from './summary-model';

const WIDTH = 72;
const HEIGHT = 16;

/** SVG path of a sparkline; a non-finite value breaks the line. Exported for tests. */
export function sparkPath({ steps, values }: ISpark): string {
  const finite = values.filter(Number.isFinite);
  const [first = 0, last = 0] = [steps[0], steps[steps.length - 1]];
  const low = finite.reduce((a, b) => Math.min(a, b), Infinity);
  const span = finite.reduce((a, b) => Math.max(a, b), -Infinity) - low || 1;
  let pen = 'M';
  return steps
    .flatMap((step, i) => {
      const value = values[i]!;
      if (!Number.isFinite(value)) {
        pen = 'M';
        return [];
      }
      const x = 1 + ((step - first) / (last - first || 1)) * (WIDTH - 2);
      const y = HEIGHT - 1.5 - ((value - low) / span) * (HEIGHT - 3);
      const point = `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = 'L';
      return [point];
    })
    .join('');
}

/** A scalar's shape over the steps so far. */
export function Sparkline({ spark, label }: { spark: ISpark; label: string }): React.ReactElement {
  return (
    <svg
      className="jp-MegalensSparkline"
      width={WIDTH}
      height={HEIGHT}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      role="img"
      aria-label={label}
    >
      <path d={sparkPath(spark)} />
    </svg>
  );
}
