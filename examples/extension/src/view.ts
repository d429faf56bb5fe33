import type { IRunSource, IViewModule, OtherOptions } from 'megalens';

const [WIDTH, HEIGHT] = [640, 200];
const SVG = 'http://www.w3.org/2000/svg';

/** Points of each line: [step, norm]. */
export type Lines = ReadonlyMap<string, readonly (readonly [number, number])[]>;

/** Read the norms of a run by the weight's name. Draws nothing, so that it runs anywhere. */
export async function readNorms(source: IRunSource, { prefix, relative }: OtherOptions): Promise<Lines> {
  const { step, value, name } = await source.scalars(null);
  const lines = new Map<string, [number, number][]>();
  name.forEach((each, row) => {
    if (each.startsWith(String(prefix))) {
      const weight = each.slice(String(prefix).length);
      const points = lines.get(weight) ?? [];
      const first = points[0] === undefined || relative !== true ? 1 : points[0][1];
      points.push([step[row] ?? NaN, (value[row] ?? NaN) / first]);
      lines.set(weight, points);
    }
  });
  return relative === true
    ? new Map([...lines].map(([weight, [first, ...rest]]) => [weight, first ? [[first[0], 1], ...rest] : []]))
    : lines;
}

/** Draw the lines, each with its name as tooltip. */
export function drawNorms(lines: Lines): SVGSVGElement {
  const points = [...lines.values()].flat().filter(point => point.every(Number.isFinite));
  const scale = (axis: 0 | 1, size: number) => {
    const values = points.map(point => point[axis]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return (value: number) => ((value - low) / (high - low || 1)) * size;
  };
  const [x, y] = [scale(0, WIDTH), scale(1, HEIGHT)];
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  for (const [weight, line] of lines) {
    const path = document.createElementNS(SVG, 'polyline');
    path.setAttribute('points', line.map(([step, norm]) => `${x(step)},${HEIGHT - y(norm)}`).join(' '));
    path.setAttribute('fill', 'none');
    path.setAttribute('stroke', 'currentColor');
    const title = document.createElementNS(SVG, 'title');
    title.textContent = weight;
    path.append(title);
    svg.append(path);
  }
  return svg;
}

export const mount: IViewModule['mount'] = async (node, source, options) => {
  let wanted = options;
  let shown: Lines = new Map();
  const draw = async (): Promise<void> => {
    shown = await readNorms(source, wanted);
    node.replaceChildren(shown.size === 0 ? 'This run has no weight norms.' : drawNorms(shown));
  };
  const onChange = (_: IRunSource, change: { kind: string; stream?: string }): void => {
    if (change.kind === 'rows' && change.stream === 'scalars') {
      void draw();
    }
  };
  source.changed.connect(onChange);
  await draw();
  return {
    update: async changed => {
      wanted = changed;
      await draw();
    },
    dispose: () => void source.changed.disconnect(onChange),
    summary: () => `Norms of ${shown.size} weights: ${[...shown.keys()].join(', ')}.`
  };
};
