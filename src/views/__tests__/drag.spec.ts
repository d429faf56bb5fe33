import { Zoom, type IPlace } from '../../charts';
import { Brush } from '../mount/brush';

/** A chart of 100 pixels over steps 0 to 100. */
function chart(): { zoom: Zoom; node: HTMLElement } {
  const node = document.createElement('div');
  document.body.append(node);
  const frame = { left: 0, top: 0, width: 100, height: 50, facet: {} };
  const locate = (event: MouseEvent): IPlace => ({ frame, x: event.clientX, y: 0, down: 0 });
  const zoom = new Zoom({ node, set: () => undefined, locate }, { axes: 'x', least: 4 });
  zoom.extent([0, 100], [0, 1]);
  new Brush({
    stage: node,
    takes: event => !event.shiftKey && !zoom.isZoomed,
    locate,
    shown: () => ({ x: [zoom.domain.x0, zoom.domain.x1], y: null }),
    draft: () => undefined,
    chosen: ({ x }) => zoom.to(x)
  });
  return { zoom, node };
}

function drag(node: HTMLElement, from: number, to: number, init: PointerEventInit = {}): void {
  const event = (type: string, clientX: number): Event =>
    Object.assign(new MouseEvent(type, { clientX, bubbles: true, button: 0, ...init }), { pointerId: 1 });
  node.dispatchEvent(event('pointerdown', from));
  document.dispatchEvent(event('pointermove', to));
  document.dispatchEvent(event('pointerup', to));
}

it('zooms to the steps that a drag goes over, in either direction, and shows all again', () => {
  const { zoom, node } = chart();
  drag(node, 20, 60);
  expect([zoom.domain.x0, zoom.domain.x1]).toEqual([20, 60]);
  zoom.reset();
  drag(node, 60, 20);
  expect([zoom.domain.x0, zoom.domain.x1]).toEqual([20, 60]);
  zoom.reset();
  drag(node, 20, 60, { shiftKey: true });
  expect(zoom.isZoomed).toBe(false);
});

it('shows no fewer steps than a picture needs', () => {
  const { zoom } = chart();
  zoom.to([50, 51]);
  expect([zoom.domain.x0, zoom.domain.x1]).toEqual([48.5, 52.5]);
});
