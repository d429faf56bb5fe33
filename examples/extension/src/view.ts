import type { IRunSource, IViewModule, OtherOptions } from 'megalens';

const [WIDTH, HEIGHT] = [640, 200];
const SVG = 'http://www.w3.org/2000/svg';

/** Points of each line: [step, norm]. */
export type Lines = ReadonlyMap<string, readonly (readonly [number, number])[]>;

/** Read the norms of a run by the weight's name. Draws nothing, so that it runs anywhere. */
export async function readNorms(source: IRunSource, { contains, relative }: OtherOptions): Promise<Lines> {
  const { columns, length } = await source.table('weight_norms');
  const lines = new Map<string, [number, number][]>();
  const first = new Map<string, number>();
  for (let row = 0; row < length; row++) {
    const [name, step, value] = ['name', 'step', 'value'].map(column => columns[column]?.[row]);
    if (typeof name === 'string' && name.includes(String(contains))) {
      first.set(name, first.get(name) ?? Number(value));
      const norm = Number(value) / (relative === true ? (first.get(name) ?? 1) : 1);
      lines.set(name, [...(lines.get(name) ?? []), [Number(step), norm]]);
    }
  }
  return lines;
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
    if (change.kind === 'rows' && change.stream === 'weight_norms') {
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
