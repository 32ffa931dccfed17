// The page of "/": a chat, and the cache beside it as it changes. One HTML text without anything
// from elsewhere; its files (live.html, live.css, live.js) are bytes of the program.

#ifndef VARVE_SERVE_PAGE_LIVE_PAGE_H_
#define VARVE_SERVE_PAGE_LIVE_PAGE_H_

#include <string>

namespace varve::serve {

std::string LivePage();

}  // namespace varve::serve

#endif  // VARVE_SERVE_PAGE_LIVE_PAGE_H_
