import { PageConfig } from '@jupyterlab/coreutils';
import { linkedView, viewLink, withoutView } from '../view-link';

const VIEW = { run: 'gpt demo/1', options: { view: 'heatmap', flag: 'A&B', layers: '0-3' } as const };

afterEach(() => PageConfig.setOption('hubPrefix', ''));

describe('a link to a view', () => {
  it('holds the view as it is', () => {
    PageConfig.setOption('baseUrl', 'http://localhost/team/');
    const link = new URL(viewLink(VIEW));
    expect(link.pathname).toBe('/team/lab');
    expect(linkedView(link.search)).toEqual(VIEW);
    expect(withoutView(`${link.search}&reset=1`)).toBe('?reset=1');
    expect(withoutView(link.search)).toBe('');
  });

  it('leads everybody of a hub to a server of their own', () => {
    PageConfig.setOption('hubPrefix', '/hub/');
    const link = new URL(viewLink(VIEW));
    expect(link.pathname).toBe('/hub/user-redirect/lab');
    expect(linkedView(link.search)).toEqual(VIEW);
  });

  it.each([
    '',
    '?megalens-view=',
    '?megalens-view={',
    '?megalens-view=[1]',
    '?megalens-view={"run":1,"options":{}}'
  ])('is none in %j', search => {
    expect(linkedView(search)).toBeNull();
  });
});
