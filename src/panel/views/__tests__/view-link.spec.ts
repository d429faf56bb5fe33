import { PageConfig } from '@jupyterlab/coreutils';
import { Notification } from '@jupyterlab/apputils';
import { nullTranslator } from '@jupyterlab/translation';
import { linkedView, openPage, viewLink, withoutView } from '../view-link';

const VIEW = { run: 'gpt demo/1', options: { view: 'heatmap', flag: 'A&B', layers: '0-3' } as const };

afterEach(() => {
  PageConfig.setOption('hubPrefix', '');
  PageConfig.setOption('megalens', '');
});

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

  it('leads to a page of the server where it is copied in one', () => {
    PageConfig.setOption('baseUrl', 'http://localhost/team/');
    PageConfig.setOption('megalens', '{}');
    const link = new URL(viewLink(VIEW));
    expect(link.pathname).toBe('/team/megalens/view/gpt%20demo%2F1/heatmap');
    expect(JSON.parse(decodeURIComponent(link.hash.slice(1)))).toEqual({ views: [VIEW] });
    PageConfig.setOption('hubPrefix', '/hub/');
    expect(new URL(viewLink(VIEW)).pathname).toMatch('/hub/user-redirect/megalens/view/');
  });

  it('that the browser does not open is offered as a button', () => {
    const open = jest.spyOn(window, 'open').mockReturnValueOnce(null).mockReturnValue(window);
    openPage({ views: [] }, nullTranslator.load('megalens'));
    const [told] = Notification.manager.notifications;
    told?.options.actions?.[0]?.callback(new MouseEvent('click'));
    expect(open).toHaveBeenCalledTimes(2);
    expect(open.mock.calls[1]?.[0]).toBe('http://localhost/team/megalens/#%7B%22views%22%3A%5B%5D%7D');
    expect(Notification.manager.notifications).toHaveLength(1);
    Notification.dismiss();
    open.mockRestore();
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
