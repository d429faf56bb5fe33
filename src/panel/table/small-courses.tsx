import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatInteger, formatNumber } from '../../charts/format';
import type { ICourses } from '../../client/courses';
import { areaPath, rangeOf, scaled, type Scale, type Values } from './courses-picture';

const [WIDTH, HEIGHT] = [300, 100];

/** Quantiles of each group of runs in a small picture of its own, all with the same axes. */
export function SmallCourses(props: {
  courses: ICourses;
  scale: Scale;
  trans: TranslationBundle;
}): React.ReactElement {
  const { courses, scale, trans } = props;
  const bands = courses.groups.map(({ quantiles }) => quantiles.map(each => scaled(each, scale)));
  const all = scaled(courses.quantiles[2] ?? [], scale);
  const [low, high] = rangeOf(bands.flat(), []);
  const pathOf = (under: Values = [], over: Values = []): string => {
    const last = Math.max(1, under.length - 1);
    return areaPath(under, over, (at, value) => [
      (at / last) * WIDTH,
      HEIGHT * (1 - (value - low) / (high - low || 1))
    ]);
  };
  const text = (value: number): string => formatNumber(scale === 'log' ? 10 ** value : value, 3);
  return (
    <div className="jp-MegalensSmallCourses">
      {courses.groups.map(({ name, runs }, at) => {
        const [p5, p25, p50, p75, p95] = bands[at] ?? [];
        const words = trans._n('%2: %1 run', '%2: %1 runs', runs, name);
        return (
          <figure key={name}>
            <figcaption title={name}>{words}</figcaption>
            <svg
              viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
              preserveAspectRatio="none"
              role="img"
              aria-label={`${courses.name}, ${words}`}
            >
              <path className="jp-mod-outer" d={pathOf(p5, p95)} />
              <path className="jp-mod-inner" d={pathOf(p25, p75)} />
              <path className="jp-mod-all" d={pathOf(all, all)} />
              <path className="jp-mod-median" d={pathOf(p50, p50)} />
            </svg>
          </figure>
        );
      })}
      <p className="jp-MegalensHint">
        {trans.__(
          'All axes are the same: %1 to %2, steps %3 to %4. The thin line is the median of all runs.',
          text(low),
          text(high),
          formatInteger(courses.steps[0] ?? 0),
          formatInteger(courses.steps.at(-1) ?? 0)
        )}
      </p>
    </div>
  );
}
